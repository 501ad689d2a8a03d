//! A load that lasts until it is judged: whatever strikes finds a relay at work.

use crate::support::oracle::Verdict;
use crate::support::scene::Scene;
use crate::support::workload::Running;

/// Starts it; it does not end by itself.
pub fn load(scene: &Scene, events_per_second: f64) -> Running {
    scene.workload().events_per_key(usize::MAX).events_per_second(events_per_second).start(&scene.database)
}

/// The last word: nothing lost or reordered, and enough written to say so.
#[track_caller]
pub fn judge(scene: &Scene, load: Running) -> Verdict {
    // 180 for each of 50 keys, by chance 30 more or less; those of a writer that had to wait get fewer.
    load.wait_written(9000);
    let verdict = scene.judge(&load.stop());
    verdict.assert_order_was_tried();
    verdict
}

//! Who this process is, and whether the slot's last holder can still be publishing.
//!
//! A leader's name says where it runs closely enough that a successor on the same machine can see whether it is dead:
//! host, process id, start time, boot id, pid namespace. Then a restart after a crash need not wait.

use std::fs;
use std::time::Duration;

use crate::lsn::Lsn;
use crate::source::System;
use crate::source::catalog::Place;

/// How the slot's last holder left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Predecessor {
    /// It was ourselves.
    Ourselves,
    /// Cleanly, or it is known to be dead, or there was none: nobody can be publishing.
    Gone,
    /// Without a mark: it may be publishing until this time, its own `sender_timeout`, has passed.
    MayLive(Duration),
}

/// This process's name in the position table.
pub(super) fn own_name() -> String {
    let host = read("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".into());
    let pid = std::process::id();
    let started = started_at(pid).unwrap_or_else(|| "0".into());
    let boot = read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{host}/{pid}/{started}/{boot}/{}", pid_namespace().unwrap_or_default())
}

/// How the holder that the position table names has left the slot that is now ours.
pub(super) fn predecessor(place: Option<&Place>, own_name: &str) -> Predecessor {
    match place {
        None => Predecessor::Gone,
        Some(place) if place.leader == own_name => Predecessor::Ourselves,
        Some(place) if place.left_cleanly || is_dead_here(&place.leader) => Predecessor::Gone,
        Some(place) => Predecessor::MayLive(place.sender_timeout),
    }
}

/// The position that the slot cannot have passed unless somebody moved it who is no relay: what the last holder had
/// settled when it left in good order, or `own`, what we have settled, if nobody else had the slot since. `None` when
/// another relay may have gone on from there.
pub(super) fn settled(place: Option<&Place>, own_name: &str, system: System, own: Option<Lsn>) -> Option<Lsn> {
    let place = place.filter(|place| place.system == system)?;
    match place.leader == own_name {
        true => own.map(|own| own.max(place.confirmed)),
        false => place.left_cleanly.then_some(place.confirmed),
    }
}

/// True only when the process ran on this boot of this machine, in our pid namespace, and does not run any more.
fn is_dead_here(leader: &str) -> bool {
    let parts: Vec<&str> = leader.split('/').collect();
    let [_, pid, started, boot, namespace] = parts.as_slice() else { return false };
    let here = read("/proc/sys/kernel/random/boot_id").as_deref() == Some(*boot)
        && !boot.is_empty()
        && pid_namespace().as_deref() == Some(*namespace);
    let Some(pid) = pid.parse().ok().filter(|_| here) else { return false };
    match started_at(pid) {
        Some(other) => other != *started,
        // /proc may hide the processes of other users: only the kernel's word counts.
        None => is_gone(pid) || is_ended(pid),
    }
}

/// The kernel knows no such process.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// It has ended and only waits to be reaped.
fn is_ended(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| matches!(fields.first().map(String::as_str), Some("Z" | "X")))
}

/// The start time of a running process, in clock ticks since boot. A process that only waits to be reaped runs no more.
fn started_at(pid: u32) -> Option<String> {
    let fields = stat(pid).filter(|_| !is_ended(pid))?;
    fields.get(19).cloned()
}

/// The fields of `/proc/<pid>/stat` behind the command's name, which stands in parentheses and may hold anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = read(&format!("/proc/{pid}/stat"))?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn pid_namespace() -> Option<String> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(link.to_string_lossy().trim_start_matches("pid:").trim_matches(['[', ']']).to_owned())
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::SystemTime;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn place(leader: &str, left_cleanly: bool) -> Place {
        let system = System { id: 1, timeline: 1 };
        let updated_at = SystemTime::UNIX_EPOCH;
        Place {
            system,
            confirmed: Lsn::ZERO,
            leader: leader.to_owned(),
            sender_timeout: TIMEOUT,
            left_cleanly,
            updated_at,
        }
    }

    fn name_of(pid: u32) -> String {
        let own = own_name();
        let mut parts: Vec<String> = own.split('/').map(str::to_owned).collect();
        parts[1] = pid.to_string();
        parts[2] = started_at(pid).unwrap();
        parts.join("/")
    }

    #[test]
    fn only_what_no_other_relay_can_have_moved_is_held_against_the_slot() {
        let (here, elsewhere) = (System { id: 1, timeline: 1 }, System { id: 1, timeline: 2 });
        let at = |leader, left_cleanly| Place { confirmed: Lsn(50), ..place(leader, left_cleanly) };
        assert_eq!(settled(None, "me", here, Some(Lsn(90))), None);
        assert_eq!(settled(Some(&at("me", false)), "me", here, Some(Lsn(90))), Some(Lsn(90)));
        assert_eq!(settled(Some(&at("me", false)), "me", here, Some(Lsn(40))), Some(Lsn(50)));
        assert_eq!(settled(Some(&at("me", false)), "me", here, None), None);
        assert_eq!(settled(Some(&at("other", true)), "me", here, Some(Lsn(90))), Some(Lsn(50)));
        assert_eq!(settled(Some(&at("other", false)), "me", here, Some(Lsn(90))), None);
        assert_eq!(settled(Some(&at("me", true)), "me", elsewhere, Some(Lsn(90))), None);
    }

    #[test]
    fn only_a_holder_that_may_live_is_waited_for() {
        let me = own_name();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let other = name_of(child.id());
        assert_eq!(predecessor(None, &me), Predecessor::Gone);
        assert_eq!(predecessor(Some(&place(&me, false)), &me), Predecessor::Ourselves);
        assert_eq!(predecessor(Some(&place("web-7/1/2/boot/3", true)), &me), Predecessor::Gone);
        assert_eq!(predecessor(Some(&place("web-7/1/2/boot/3", false)), &me), Predecessor::MayLive(TIMEOUT));
        assert_eq!(predecessor(Some(&place("odd name", false)), &me), Predecessor::MayLive(TIMEOUT));
        assert_eq!(predecessor(Some(&place(&other, false)), &me), Predecessor::MayLive(TIMEOUT));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(predecessor(Some(&place(&other, false)), &me), Predecessor::Gone);
    }
}

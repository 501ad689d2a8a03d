//! The proxy is tried itself: each disturbance does what it says, seen from both ends of a connection.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "support/mod.rs"]
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use support::proxy::{Proxy, Way};
use support::{PATIENCE, eventually};

/// Long enough to say that nothing comes.
const SILENCE: Duration = Duration::from_millis(300);

/// A proxy, and the listener of the server behind it.
struct World {
    proxy: Proxy,
    listener: TcpListener,
}

impl World {
    fn new() -> World {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        World { proxy: Proxy::start(listener.local_addr().unwrap().port()), listener }
    }

    /// A connection through the proxy, as the client and as the server see it.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.address()).unwrap();
        let (server, _) = self.listener.accept().unwrap();
        (client, server)
    }
}

#[track_caller]
fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

/// Reads exactly this text.
#[track_caller]
fn expect(stream: &mut TcpStream, text: &str) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = vec![0; text.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), text);
}

/// Neither a byte nor an end comes.
#[track_caller]
fn expect_silence(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

/// What is left to read, and how it ended.
fn rest(stream: &mut TcpStream) -> (String, Option<ErrorKind>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes).err().map(|error| error.kind());
    (String::from_utf8(bytes).unwrap(), ended)
}

/// The connection still carries bytes both ways.
#[track_caller]
fn expect_works(client: &mut TcpStream, server: &mut TcpStream) {
    send(client, "question");
    expect(server, "question");
    send(server, "answer");
    expect(client, "answer");
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    // A byte is counted just after it has left.
    eventually("all are counted", PATIENCE, || world.proxy.passed(Way::Both) == 14);
    assert_eq!((world.proxy.passed(Way::ToServer), world.proxy.passed(Way::ToClient)), (8, 6));
    assert_eq!((world.proxy.connections(), world.proxy.accepted()), (1, 1));
    drop((client, server));
    eventually("the connection is closed", PATIENCE, || world.proxy.connections() == 0);
    assert_eq!(world.proxy.accepted(), 1);
}

#[test]
fn much_passes_unharmed_although_nobody_reads_for_a_while() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    let text: String = (0..20_000_000).map(|_| fastrand::alphanumeric()).collect();
    let sent = text.clone();
    let sending = std::thread::spawn(move || send(&mut client, &sent));
    eventually("buffers fill", PATIENCE, || world.proxy.passed(Way::ToServer) > 100_000);
    expect(&mut server, &text);
    sending.join().unwrap();
    assert_eq!(rest(&mut server), (String::new(), None));
}

#[test]
fn one_end_may_close_its_way_and_still_be_answered() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    send(&mut client, "question");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut server), ("question".to_string(), None));
    send(&mut server, "answer");
    drop(server);
    assert_eq!(rest(&mut client), ("answer".to_string(), None));
}

#[test]
fn a_cut_ends_both_ways_in_order_although_bytes_were_unread() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    world.proxy.lose(Way::Both);
    send(&mut client, "lost");
    send(&mut server, "lost");
    world.proxy.cut();
    assert_eq!(rest(&mut client), (String::new(), None));
    assert_eq!(rest(&mut server), (String::new(), None));
    assert_eq!(world.proxy.connections(), 0);
    world.proxy.heal();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
}

#[test]
fn a_reset_is_a_reset_for_both_ends() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    world.proxy.reset();
    assert_eq!(rest(&mut client), (String::new(), Some(ErrorKind::ConnectionReset)));
    assert_eq!(rest(&mut server), (String::new(), Some(ErrorKind::ConnectionReset)));
}

#[test]
fn a_reset_by_one_end_reaches_the_other() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    send(&mut server, "unread");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.peek(&mut [0]).unwrap();
    // Unread bytes make it one.
    drop(client);
    assert_eq!(rest(&mut server), (String::new(), Some(ErrorKind::ConnectionReset)));
}

#[test]
fn a_lost_way_is_silent_and_the_other_one_works_until_what_was_held_flows() {
    for (lost, forth) in [(Way::ToServer, true), (Way::ToClient, false)] {
        let world = World::new();
        let (client, server) = world.connect();
        let (mut from, mut to) = if forth { (client, server) } else { (server, client) };
        world.proxy.lose(lost);
        send(&mut from, "held ");
        expect_silence(&mut to);
        send(&mut to, "passed");
        expect(&mut from, "passed");
        // A new connection is taken, and as deaf.
        let (client, server) = world.connect();
        let (mut new_from, mut new_to) = if forth { (client, server) } else { (server, client) };
        send(&mut new_from, "held");
        expect_silence(&mut new_to);
        send(&mut from, "bytes");
        drop(from);
        expect_silence(&mut to);
        world.proxy.heal();
        assert_eq!(rest(&mut to), ("held bytes".to_string(), None));
        expect(&mut new_to, "held");
    }
}

#[test]
fn an_end_that_is_gone_is_not_reported_over_a_lost_way() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    world.proxy.lose(Way::ToServer);
    drop(client);
    // Whoever sends to a closed socket gets RST back; here it is lost on its way.
    for _ in 0..3 {
        send(&mut server, "to nobody");
        expect_silence(&mut server);
    }
    world.proxy.heal();
    eventually("the server learns of it", PATIENCE, || server.write_all(b"to nobody").is_err());
}

#[test]
fn a_stall_loses_both_ways_also_when_they_are_lost_one_after_the_other() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    world.proxy.lose(Way::ToServer);
    world.proxy.lose(Way::ToClient);
    send(&mut client, "held");
    send(&mut server, "held");
    expect_silence(&mut client);
    expect_silence(&mut server);
    world.proxy.heal();
    expect(&mut client, "held");
    expect(&mut server, "held");
    world.proxy.stall();
    send(&mut client, "held");
    expect_silence(&mut server);
}

#[test]
fn an_abandoned_connection_hides_each_end_from_the_other_for_good() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    let (mut other_client, mut other_server) = world.connect();
    expect_works(&mut client, &mut server);
    expect_works(&mut other_client, &mut other_server);
    world.proxy.abandon();
    eventually("they count no more", PATIENCE, || world.proxy.connections() == 0);
    send(&mut client, "into the void");
    expect_silence(&mut server);
    drop(client);
    drop(other_server);
    world.proxy.heal();
    send(&mut server, "into the void");
    expect_silence(&mut server);
    expect_silence(&mut other_client);
    let (mut client, mut new_server) = world.connect();
    expect_works(&mut client, &mut new_server);
    world.proxy.cut();
    expect_silence(&mut server);
}

#[test]
fn a_deafened_connection_goes_on_to_the_server_only() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    world.proxy.deafen();
    eventually("it counts no more", PATIENCE, || world.proxy.connections() == 0);
    send(&mut server, "into the void");
    expect_silence(&mut client);
    send(&mut client, "heard");
    expect(&mut server, "heard");
    let (mut new_client, mut new_server) = world.connect();
    expect_works(&mut new_client, &mut new_server);
    drop(client);
    assert_eq!(rest(&mut server), (String::new(), None));
}

#[test]
fn a_connection_is_cut_behind_the_chosen_byte() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    // Open connections count from here, new ones from their beginning.
    world.proxy.cut_after(Way::ToServer, 5);
    let (mut new_client, mut new_server) = world.connect();
    for (client, server) in [(&mut client, &mut server), (&mut new_client, &mut new_server)] {
        send(server, "any number of bytes");
        expect(client, "any number of bytes");
        send(client, "12");
        send(client, "34567");
        assert_eq!(rest(server), ("12345".to_string(), None));
        assert_eq!(rest(client), (String::new(), None));
    }
    world.proxy.heal();
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
    world.proxy.cut_after(Way::ToClient, 3);
    expect_works_until_the_third_byte(&mut client, &mut server);
}

#[track_caller]
fn expect_works_until_the_third_byte(client: &mut TcpStream, server: &mut TcpStream) {
    send(client, "question");
    expect(server, "question");
    send(server, "answer");
    assert_eq!(rest(client), ("ans".to_string(), None));
    assert_eq!(rest(server), (String::new(), None));
}

#[test]
fn bytes_drip() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    world.proxy.drip(2, Duration::from_millis(50));
    let begin = Instant::now();
    send(&mut client, "0123456789");
    expect(&mut server, "0123456789");
    assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
    // Healing does not wait for the drops that are due.
    world.proxy.drip(1, PATIENCE);
    send(&mut server, "0123456789");
    expect(&mut client, "0");
    expect_silence(&mut client);
    world.proxy.heal();
    expect(&mut client, "123456789");
}

#[test]
fn bytes_arrive_late_but_no_fewer_at_a_time() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    const LATENCY: Duration = Duration::from_secs(1);
    world.proxy.latency(LATENCY);
    let begin = Instant::now();
    for _ in 0..10 {
        send(&mut client, "late");
        std::thread::sleep(Duration::from_millis(10));
    }
    expect(&mut server, &"late".repeat(10));
    let took = begin.elapsed();
    assert!((LATENCY..LATENCY * 3).contains(&took), "ten pieces took {took:?}");
    client.shutdown(Shutdown::Write).unwrap();
    expect_silence(&mut server);
    assert_eq!(rest(&mut server), (String::new(), None));
}

#[test]
fn new_connections_are_refused_and_open_ones_live_on() {
    let world = World::new();
    let (mut client, mut server) = world.connect();
    world.proxy.refuse(true);
    assert_eq!(rest(&mut TcpStream::connect(world.proxy.address()).unwrap()), (String::new(), None));
    expect_works(&mut client, &mut server);
    assert_eq!(world.proxy.accepted(), 1);
    world.proxy.refuse(false);
    let (mut client, mut server) = world.connect();
    expect_works(&mut client, &mut server);
}

#[test]
fn without_a_server_behind_it_a_connection_is_reset() {
    let World { proxy, listener } = World::new();
    drop(listener);
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(rest(&mut client), (String::new(), Some(ErrorKind::ConnectionReset)));
}

#[test]
fn a_dropped_proxy_ends_its_connections_and_frees_its_port() {
    let World { proxy, listener } = World::new();
    let port = proxy.port();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    drop(proxy);
    assert_eq!(rest(&mut client), (String::new(), None));
    assert_eq!(rest(&mut server), (String::new(), None));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

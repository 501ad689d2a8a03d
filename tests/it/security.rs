//! A server that demands TLS, SCRAM and client certificates gets them, and one that cannot be trusted gets nothing:
//! each wrong certificate is a definite error that says what is wrong with it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::support::PATIENCE;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, Stop};
use crate::support::process::Scratch;
use crate::support::relay::{Config, Ended};
use crate::support::scene::{PARTITIONS, Scene};

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

#[test]
fn tls_scram_channel_binding_and_client_certificates_are_what_a_strict_server_gets() {
    let ca = Authority::new();
    let place = Place::new(&ca, &NAMES);
    let scene = place.scene("relay");
    let url = place.url(&scene, "relay", "sslmode=verify-full&channel_binding=require");
    let url = format!("{url}&sslrootcert={}", place.file("ca.crt", &ca.certificate));
    flows(&scene, scene.config.clone().set("postgres.url", url).set("postgres.password", "secret"));

    let scene = place.scene("certified");
    let url = place.url(&scene, "certified", "sslmode=verify-full&channel_binding=require");
    let url = format!("{url}&sslrootcert={}", place.file("ca.crt", &ca.certificate));
    let config = scene.config.clone().set("postgres.password", "secret");
    assert_fails(&run(config.clone().set("postgres.url", url.clone())), &["certificate"]);

    let with = |name: &str, (certificate, key): (String, String)| {
        let certificate = place.file(&format!("{name}.crt"), &certificate);
        config.clone().set(
            "postgres.url",
            format!("{url}&sslcert={certificate}&sslkey={}", place.file(&format!("{name}.key"), &key)),
        )
    };
    assert_fails(&run(with("another", ca.client("another"))), &["authentication failed for user \"certified\""]);
    assert_fails(&run(with("forged", Authority::new().client("certified"))), &["certificate"]);
    flows(&scene, with("certified", ca.client("certified")));
}

#[test]
fn an_untrusted_an_expired_and_a_misnamed_certificate_are_each_called_what_they_are() {
    let ca = Authority::new();
    let place = Place::new(&ca, &NAMES);
    let scene = place.scene("relay");
    let full = |ca: &Authority| {
        let url = place.url(&scene, "relay", "sslmode=verify-full");
        let url = format!("{url}&sslrootcert={}", place.file("ca.crt", &ca.certificate));
        scene.config.clone().set("postgres.url", url).set("postgres.password", "secret")
    };
    assert_fails(&run(full(&Authority::new())), &["issuer that is not trusted", "sslrootcert"]);
    place.serve(&ca.server(&["db.example"], Validity::Now));
    assert_fails(&run(full(&ca)), &["certificate is for another name", "subjectAltName"]);
    place.serve(&ca.server(&NAMES, Validity::Past));
    assert_fails(&run(full(&ca)), &["certificate has expired", "renew"]);

    // Without TLS a strict server refuses, and binding to a channel that is not there is refused by us.
    let plain = place.url(&scene, "relay", "sslmode=disable");
    let config = scene.config.clone().set("postgres.password", "secret");
    assert_fails(&run(config.clone().set("postgres.url", plain)), &["pg_hba.conf"]);
    place.serve(&ca.server(&NAMES, Validity::Now));
    flows(&scene, full(&ca));
}

/// A server that lets nobody in by TCP without TLS and a password, and `certified` not without its certificate.
struct Place {
    postgres: Arc<Postgres>,
    scratch: Scratch,
}

impl Place {
    fn new(ca: &Authority, names: &[&str]) -> Place {
        let (certificate, key) = ca.server(names, Validity::Now);
        let postgres = Postgres::options()
            .tls(&certificate, &key, Some(&ca.certificate))
            .hba("hostssl all certified 127.0.0.1/32 scram-sha-256 clientcert=verify-full")
            .hba("hostssl all all 127.0.0.1/32 scram-sha-256")
            .start();
        Place { postgres, scratch: Scratch::new() }
    }

    /// A scene whose role has the rights that init gives, and a password.
    fn scene(&self, role: &str) -> Scene {
        let kafka = Kafka::shared();
        let scene = Scene::bare(&self.postgres, &kafka);
        let config = scene.config.clone().set("postgres.url", self.url(&scene, role, "sslmode=require"));
        config.run(&["init", "--url", &self.postgres.socket_url(scene.database.name())]).assert_success();
        scene.database.exec(&format!("alter role {role} password 'secret'"));
        kafka.create_topic(&scene.topic, PARTITIONS);
        scene
    }

    fn url(&self, scene: &Scene, role: &str, parameters: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{}?{parameters}", self.postgres.port(), scene.database.name())
    }

    /// Shows another certificate from now on.
    fn serve(&self, (certificate, key): &(String, String)) {
        let data = self.postgres.directory().join("data");
        fs::write(data.join("server.crt"), certificate).unwrap();
        fs::write(data.join("server.key"), key).unwrap();
        self.postgres.restart(Stop::Immediate);
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.scratch.path().join(name);
        fs::write(&path, text).unwrap();
        private(&path);
        path.display().to_string()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Validity {
    Now,
    Past,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// Certificate and key of a server with these names.
    fn server(&self, names: &[&str], validity: Validity) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if validity == Validity::Past {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        self.sign(params)
    }

    /// Certificate and key of a client with this common name.
    fn client(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

#[track_caller]
fn flows(scene: &Scene, config: Config) {
    let mut relay = crate::support::relay::Relay::start(&config);
    relay.wait_ready();
    let id = scene.write("k", "{}");
    scene.reader.wait_for("the event", PATIENCE, |seen| seen.iter().any(|seen| seen.id() == id));
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
}

fn run(config: Config) -> Ended {
    config.set("http.listen", "127.0.0.1:0").run(&["run"])
}

#[track_caller]
fn assert_fails(ended: &Ended, says: &[&str]) {
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let unsaid: Vec<&&str> = says.iter().filter(|words| !ended.stderr.contains(**words)).collect();
    assert!(unsaid.is_empty() && ended.stderr.contains("hint: "), "not said: {unsaid:?}\n{}", ended.stderr);
}

fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

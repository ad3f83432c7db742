//! Mail Gateway.

use super::{check, fails, odd_bodies};
use model::{FailureCategory, Outcome};
use tests::proxmox::{Bench, NOW, lines};

#[tokio::test(flavor = "multi_thread")]
async fn pmg_unreadable_values_are_neither_ok_nor_critical() {
    odd_bodies("pmg", "node/", "total memory of pmg1 is").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pmg_reports_each_fault_and_nothing_else() {
    let bench = Bench::new("pmg").await;
    let healthy = bench.report("healthy").await;
    let all: Vec<String> = lines(&healthy).into_iter().map(|(name, line)| format!("{name} {line}")).collect();
    let expected = [
        "api ok",
        "certificate/pmg1 ok",
        "certificate/pmg2 ok",
        "certificate/pmg3 ok",
        "clamav ok",
        "cluster ok",
        "node/pmg1 ok",
        "node/pmg2 ok",
        "node/pmg3 ok",
        "queue/active ok",
        "queue/deferred ok",
        "queue/hold ok",
        "queue/incoming ok",
        "service/clamav-daemon ok",
        "service/pmg-hourly ok",
        "service/pmg-smtp-filter ok",
        "service/pmgmirror ok",
        "service/pmgtunnel ok",
        "service/postfix ok",
        "spamassassin ok",
    ];
    assert_eq!(all, expected);
    let cases: &[(&str, &[&str])] = &[
        (
            "standalone",
            &[
                "cluster ok (skipped)",
                "*/pmg2 is not there",
                "*/pmg3 is not there",
                "service/pmgmirror is not there",
                "service/pmgtunnel is not there",
            ],
        ),
        (
            "no-rights",
            &[
                "api warning: *lack the rights for /config/cluster/status: give*",
                "cluster unknown: *lack the rights for /config/cluster/status: give the user the role Auditor*",
                "node/* is not there",
                "queue/* unknown: no node could be asked: *",
                "service/* is not there",
                "service/ is kept",
                "certificate/* is not there",
                "certificate/ is kept",
                "clamav is not there",
                "clamav is kept",
                "spamassassin is not there",
                "spamassassin is kept",
                "warning: the * not known: the credentials are right*",
            ],
        ),
        (
            "node-dead",
            &[
                "node/pmg3 critical: pmg3 cannot be reached*No route to host)",
                "cluster warning: not synchronised with the others: pmg3*",
                "certificate/pmg3 is not there",
                "certificate/pmg3 is kept",
            ],
        ),
        (
            "cluster-hangs",
            &["cluster unknown: it is not known whether its nodes are synchronised: *no whole answer \
                             within*"],
        ),
        ("out-of-step", &["cluster warning: not synchronised with the others: pmg3; check \"pmgcm status\"*"]),
        (
            "deferred",
            &[
                "queue/deferred warning: pmg1 has 100 or more in it, counted by recipient: \"postqueue -p\" on the node*",
            ],
        ),
        ("held", &["queue/hold warning: pmg1 has 1 or more in it*"]),
        (
            "service-down",
            &["service/pmg-smtp-filter critical: it is not running on pmg1: check it there with \"systemctl status \
                 pmg-smtp-filter\""],
        ),
        ("memory-full", &["node/* warning: memory: more than 95 % is used"]),
        (
            "clamav-old",
            &["clamav critical: the daily signatures of pmg1 are of 2026-11-10 12:00 UTC, more than 168 hours old*"],
        ),
        (
            "rules-old",
            &["spamassassin warning: there are newer rules, and the installed ones are more than 72 hours old: \
                 updates.spamassassin.org on pmg1*"],
        ),
        (
            "rules-old+nulls",
            &[
                "spamassassin unknown: whether there are newer rules is not reported by updates.spamassassin.org on \
                 pmg*",
                "* unknown*",
            ],
        ),
        ("certificate-ended", &["certificate/pmg* critical: pmg-api.pem has expired*systemctl restart pmgproxy*"]),
        ("strings", &[]),
    ];
    for case in cases {
        check(&bench, &healthy, *case).await;
    }
    fails(&bench, "tfa", FailureCategory::Misconfigured, "second_factor", "wants a second factor").await;
    fails(&bench, "ticket-lost", FailureCategory::Transient, "ticket_refused", "invalid PMG ticket").await;
    fails(&bench, "login-page", FailureCategory::Transient, "web_page", "web page").await;

    // The poll waits once for dead peers that delay the cluster's list.
    bench.poll("cluster-hangs", Some("hung")).await;
    let again = bench.poll("cluster-hangs", Some("hung")).await;
    assert_eq!(again.usage.requests, 8, "version, nodes, each one's status, 3 numbers");
    let Outcome::Success(again) = again.outcome else { panic!("{:?}", again.outcome) };
    assert!(lines(&again)["cluster"].starts_with("unknown: it is not known whether its nodes are synchronised"));
    assert_eq!(lines(&again)["node/pmg3"], "ok");

    // One log-in serves many polls.
    let first = bench.poll("healthy", Some("again")).await.usage.requests;
    let again = bench.poll("healthy", Some("again")).await.usage.requests;
    assert_eq!(
        (first, again),
        (30, 5),
        "ticket, version, cluster, 3 numbers; 4 queues, services, filters and certificates of 3 nodes"
    );

    // A refused ticket is replaced: one refused request, and a log-in.
    let renewed = bench.poll("key-renewed", Some("again")).await;
    assert!(matches!(renewed.outcome, Outcome::Success(_)), "{:?}", renewed.outcome);
    assert_eq!(renewed.usage.requests, 5 + 2);
    assert_eq!(bench.poll("key-renewed", Some("again")).await.usage.requests, 5);

    // After an hour the ticket renews itself: the password is not sent again.
    let hour = 3600;
    let (minutely, hourly) = (4 * 3 + 3, 3 * 3);
    for (later, requests) in [(hour - 1, 5 + minutely), (hour, 5 + 1 + hourly), (hour + 1, 5)] {
        let done = bench.poll_at("pmg/key-renewed+password-changed", Some("again"), NOW + later).await;
        assert!(matches!(done.outcome, Outcome::Success(_)), "{later} s later: {:?}", done.outcome);
        assert_eq!(done.usage.requests, requests, "{later} s later");
    }
    fails(&bench, "password-changed", FailureCategory::Misconfigured, "unauthorized", "check the setting \"username\"")
        .await;

    let stranger = bench.with_secret(("password", "not the password"));
    fails(&stranger, "healthy", FailureCategory::Misconfigured, "unauthorized", "check the setting \"username\"").await;
}

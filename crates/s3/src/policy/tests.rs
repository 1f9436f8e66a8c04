//! The language, statement by statement, and what it refuses.

use super::statement::TEXT_MAX;
use super::*;
use serde_json::{Value, json};

fn parsed(statements: Value) -> Result<Policy, String> {
    let text = json!({"Version": "2012-10-17", "Statement": statements}).to_string();
    Policy::parse(&text, "b")
}

/// An Allow of GetObject for everybody on all objects, with some elements set, and others (null) taken away.
fn with(changes: Value) -> Value {
    let mut statement = json!({"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"});
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(statement.as_object_mut().unwrap().remove(name)),
            value => statement[name] = value.clone(),
        }
    }
    statement
}

fn get<'a>(key: &'a str, user: Option<&'a str>) -> Request<'a> {
    Request {
        action: Action::GetObject,
        bucket: "b",
        key: Some(key),
        user,
        values: user.map(|u| (Key::Username, u.to_string())).into_iter().collect(),
        settled: &[],
    }
}

fn judged(changes: Value, asked: &Request<'_>) -> Verdict {
    parsed(with(changes)).unwrap().judge(asked)
}

const ALICE: &str = "arn:aws:iam:::user/alice";

#[test]
fn statements_are_for_principals() {
    let of = |principal: Value, user| judged(json!({"Principal": principal}), &get("k", user));
    for everybody in [json!("*"), json!({"AWS": "*"}), json!({"AWS": [ALICE, "*"]})] {
        assert_eq!(of(everybody.clone(), None), Verdict::Allow);
        assert_eq!(of(everybody, Some("bob")), Verdict::Allow);
    }
    for alice in [json!({"AWS": ALICE}), json!({"CanonicalUser": "alice"})] {
        assert_eq!(of(alice.clone(), Some("alice")), Verdict::Allow);
        assert_eq!(of(alice.clone(), Some("alic")), Verdict::Silent);
        assert_eq!(of(alice, None), Verdict::Silent);
    }
    let but = json!({"Effect": "Deny", "Principal": null, "NotPrincipal": {"AWS": ALICE}});
    assert_eq!(judged(but.clone(), &get("k", Some("alice"))), Verdict::Silent);
    assert_eq!(judged(but.clone(), &get("k", Some("bob"))), Verdict::Deny);
    assert_eq!(judged(but, &get("k", None)), Verdict::Deny);
}

#[test]
fn statements_are_for_actions_and_resources() {
    let on = |changes: Value, key| judged(changes, &get(key, None));
    let list = Request {
        action: Action::ListBucket,
        key: None,
        ..get("", None)
    };
    assert_eq!(on(json!({}), "a/b?c"), Verdict::Allow);
    assert_eq!(on(json!({"Action": "S3:GET*"}), "k"), Verdict::Allow);
    assert_eq!(
        on(json!({"Action": ["s3:PutObject", "s3:Get?bject"]}), "k"),
        Verdict::Allow
    );
    assert_eq!(on(json!({"Action": "s3:PutObject"}), "k"), Verdict::Silent);
    assert_eq!(on(json!({"Action": "s3:GetObjectVersion"}), "k"), Verdict::Silent);
    assert_eq!(
        on(json!({"Action": null, "NotAction": "s3:Put*"}), "k"),
        Verdict::Allow
    );
    assert_eq!(
        on(json!({"Action": null, "NotAction": "s3:Get*"}), "k"),
        Verdict::Silent
    );
    assert_eq!(
        on(json!({"Resource": "arn:aws:s3:::b/d/*.txt"}), "d/e/f.txt"),
        Verdict::Allow
    );
    assert_eq!(
        on(json!({"Resource": "arn:aws:s3:::b/d/*.txt"}), "d/e/f.txt2"),
        Verdict::Silent
    );
    let but = json!({"Resource": null, "NotResource": ["arn:aws:s3:::b/d/*", "arn:aws:s3:::b/e"]});
    assert_eq!(on(but.clone(), "d/x"), Verdict::Silent);
    assert_eq!(on(but, "ex"), Verdict::Allow);
    let all = json!({"Action": "*", "Resource": "arn:aws:s3:::b*"});
    assert_eq!(
        (judged(all.clone(), &list), on(all, "k")),
        (Verdict::Allow, Verdict::Allow)
    );
    assert_eq!(judged(json!({"Action": "s3:*"}), &list), Verdict::Silent);
    let bucket = json!({"Action": "s3:*", "Resource": "arn:aws:s3:::b"});
    assert_eq!(
        (judged(bucket.clone(), &list), on(bucket, "k")),
        (Verdict::Allow, Verdict::Silent)
    );
}

#[test]
fn a_denial_goes_before_everything() {
    let policy = |first: &str, second: &str| {
        let statements = json!([
            with(json!({"Effect": first})),
            with(json!({"Effect": second, "Resource": "arn:aws:s3:::b/x*"}))
        ]);
        parsed(statements).unwrap()
    };
    for (policy, other) in [
        (policy("Allow", "Deny"), Verdict::Allow),
        (policy("Deny", "Allow"), Verdict::Deny),
    ] {
        assert_eq!(policy.judge(&get("x", None)), Verdict::Deny);
        assert_eq!(policy.judge(&get("y", None)), other);
    }
    assert_eq!(Policy::closed().judge(&get("k", Some("alice"))), Verdict::Deny);
    assert_eq!(Policy::default().judge(&get("k", None)), Verdict::Silent);
}

/// Whether a condition holds for a value of its key, or for none.
fn holds(operator: &str, key: &str, wanted: Value, value: Option<&str>) -> bool {
    let mut asked = get("k", None);
    let of = Key::named(key).unwrap();
    asked.values.extend(value.map(|v| (of, v.to_string())));
    let condition = json!({ operator: { key: wanted } });
    judged(json!({"Condition": condition}), &asked) == Verdict::Allow
}

#[test]
fn conditions_hold_or_do_not() {
    let two = json!(["a/*", "B"]);
    for (operator, key, wanted, good, bad) in [
        (
            "StringEquals",
            "s3:prefix",
            two.clone(),
            vec!["B", "a/*"],
            vec!["b", "a/x", ""],
        ),
        (
            "StringNotEquals",
            "S3:Prefix",
            two.clone(),
            vec!["b", "a/x"],
            vec!["B", "a/*"],
        ),
        (
            "StringEqualsIgnoreCase",
            "s3:prefix",
            two.clone(),
            vec!["b", "A/*"],
            vec!["c"],
        ),
        (
            "StringNotEqualsIgnoreCase",
            "s3:prefix",
            two.clone(),
            vec!["c"],
            vec!["b"],
        ),
        (
            "StringLike",
            "s3:prefix",
            two.clone(),
            vec!["B", "a/", "a/x/y"],
            vec!["a", "b"],
        ),
        ("StringNotLike", "s3:prefix", two, vec!["a", "b"], vec!["a/x"]),
        (
            "StringLike",
            "aws:UserAgent",
            json!("b??o*"),
            vec!["boto", "bo?o3"],
            vec!["bot", "aboto"],
        ),
        (
            "StringEquals",
            "s3:x-amz-copy-source",
            json!("/c/k"),
            vec!["c/k"],
            vec!["/c/k", "c"],
        ),
        (
            "NumericEquals",
            "s3:max-keys",
            json!(10),
            vec!["10", "10.0"],
            vec!["11", "x"],
        ),
        (
            "NumericNotEquals",
            "s3:max-keys",
            json!("10"),
            vec!["11"],
            vec!["10"],
        ),
        (
            "NumericLessThan",
            "s3:max-keys",
            json!("10"),
            vec!["9"],
            vec!["10"],
        ),
        (
            "NumericLessThanEquals",
            "s3:max-keys",
            json!("10"),
            vec!["10"],
            vec!["11"],
        ),
        (
            "NumericGreaterThan",
            "s3:max-keys",
            json!("10"),
            vec!["11"],
            vec!["10"],
        ),
        (
            "NumericGreaterThanEquals",
            "s3:max-keys",
            json!("10"),
            vec!["10"],
            vec!["9"],
        ),
        (
            "DateLessThan",
            "aws:CurrentTime",
            json!("2020-03-01T00:00:00Z"),
            vec!["1583020799"],
            vec!["1583020800"],
        ),
        (
            "DateGreaterThanEquals",
            "aws:EpochTime",
            json!(1583020800),
            vec!["1583020800"],
            vec!["1583020799"],
        ),
        (
            "DateEquals",
            "aws:CurrentTime",
            json!("1970-01-02"),
            vec!["86400"],
            vec!["86401"],
        ),
        (
            "Bool",
            "aws:SecureTransport",
            json!(false),
            vec!["false"],
            vec!["true"],
        ),
        (
            "Bool",
            "aws:SecureTransport",
            json!("true"),
            vec!["true"],
            vec!["false"],
        ),
        (
            "IpAddress",
            "aws:SourceIp",
            json!(["10.1.0.0/16", "2001:db8::/32"]),
            vec!["10.1.2.3", "2001:db8:1::1"],
            vec!["10.2.0.0", "2001:db9::1", "x"],
        ),
        (
            "NotIpAddress",
            "aws:SourceIp",
            json!("10.1.2.3"),
            vec!["10.1.2.4", "::1"],
            vec!["10.1.2.3"],
        ),
        (
            "IpAddress",
            "aws:SourceIp",
            json!(["0.0.0.0/0", "::/0"]),
            vec!["10.1.2.3", "::1"],
            vec!["x"],
        ),
    ] {
        for value in good {
            assert!(
                holds(operator, key, wanted.clone(), Some(value)),
                "{operator} {value}"
            );
        }
        for value in bad {
            assert!(
                !holds(operator, key, wanted.clone(), Some(value)),
                "{operator} {value}"
            );
        }
        let not = operator.contains("Not");
        assert_eq!(
            holds(operator, key, wanted.clone(), None),
            not,
            "{operator} without a value"
        );
        let if_exists = format!("{operator}IfExists");
        assert!(
            holds(&if_exists, key, wanted, None),
            "{if_exists} without a value"
        );
    }
    assert!(!holds("StringEqualsIfExists", "s3:prefix", json!("a"), Some("b")));
    assert!(
        holds("Null", "s3:prefix", json!("true"), None) && !holds("Null", "s3:prefix", json!(true), Some(""))
    );
    assert!(
        !holds("Null", "s3:prefix", json!("false"), None)
            && holds("Null", "s3:prefix", json!(false), Some(""))
    );
}

#[test]
fn all_conditions_have_to_hold() {
    let condition = json!({"StringEquals": {"s3:prefix": "a", "s3:delimiter": "/"}, "NumericLessThan": {"s3:max-keys": 5}});
    let of = |values: &[(Key, &str)]| {
        let mut asked = get("k", None);
        asked
            .values
            .extend(values.iter().map(|(k, v)| (*k, v.to_string())));
        judged(json!({"Condition": condition}), &asked)
    };
    let all = [(Key::Prefix, "a"), (Key::Delimiter, "/"), (Key::MaxKeys, "4")];
    assert_eq!(of(&all), Verdict::Allow);
    for left in 0..3 {
        let some: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != left)
            .map(|(_, v)| *v)
            .collect();
        assert_eq!(of(&some), Verdict::Silent);
    }
}

#[test]
fn variables_are_of_whoever_asks() {
    let home = json!({"Resource": "arn:aws:s3:::b/home/${aws:username}/*"});
    assert_eq!(
        judged(home.clone(), &get("home/alice/k", Some("alice"))),
        Verdict::Allow
    );
    assert_eq!(
        judged(home.clone(), &get("home/alice/k", Some("bob"))),
        Verdict::Silent
    );
    assert_eq!(judged(home.clone(), &get("home/*/k", Some("*"))), Verdict::Allow);
    assert_eq!(judged(home.clone(), &get("home/x/k", Some("*"))), Verdict::Silent);
    assert_eq!(judged(home, &get("home//k", None)), Verdict::Silent);
    let literal = json!({"Resource": "arn:aws:s3:::b/${*}${?}${$}"});
    assert_eq!(judged(literal.clone(), &get("*?$", None)), Verdict::Allow);
    assert_eq!(judged(literal, &get("abc", None)), Verdict::Silent);
    let old = json!({"Version": "2008-10-17", "Statement": with(json!({"Resource": "arn:aws:s3:::b/${aws:username}"}))});
    let old = Policy::parse(&old.to_string(), "b").unwrap();
    assert_eq!(old.judge(&get("alice", Some("alice"))), Verdict::Silent);
    assert_eq!(old.judge(&get("${aws:username}", None)), Verdict::Allow);
}

#[test]
fn what_was_judged_at_an_uploads_begin_stands() {
    let acl = json!({"StringEquals": {"s3:x-amz-acl": "private"}});
    let part = Request {
        settled: &[Key::Acl],
        ..get("k", None)
    };
    assert_eq!(judged(json!({"Condition": acl}), &part), Verdict::Allow);
    assert_eq!(
        judged(json!({"Effect": "Deny", "Condition": acl}), &part),
        Verdict::Silent
    );
    let unless = json!({"StringNotEquals": {"s3:x-amz-acl": "private"}});
    assert_eq!(
        judged(json!({"Effect": "Deny", "Condition": unless}), &part),
        Verdict::Silent
    );
    assert_eq!(
        judged(json!({"Effect": "Deny", "Condition": unless}), &get("k", None)),
        Verdict::Deny
    );
}

#[test]
fn what_is_not_known_refuses_the_whole() {
    for bad in [
        json!({"Extra": 1}),
        json!({"Sid": 1}),
        json!({"Effect": "allow"}),
        json!({"Effect": null}),
        json!({"Principal": null}),
        json!({"NotPrincipal": "*"}),
        json!({"Principal": null, "NotPrincipal": {"AWS": ALICE}}),
        json!({"Principal": "alice"}),
        json!({"Principal": {}}),
        json!({"Principal": {"AWS": []}}),
        json!({"Principal": {"AWS": "alice"}}),
        json!({"Principal": {"AWS": "arn:aws:iam::123456789012:user/alice"}}),
        json!({"Principal": {"AWS": "arn:aws:iam:::user/*"}}),
        json!({"Principal": {"Service": "a"}}),
        json!({"Action": null}),
        json!({"Action": "s3:GetObjekt"}),
        json!({"Action": "ec2:*"}),
        json!({"Action": []}),
        json!({"NotAction": "s3:*"}),
        json!({"Action": "s3:ListBucket"}),
        json!({"Action": ["s3:GetObject", "s3:PutBucketAcl"]}),
        json!({"Resource": null}),
        json!({"Resource": "arn:aws:s3:::other/*"}),
        json!({"Resource": "b/*"}),
        json!({"Resource": "arn:aws:s3:::b"}),
        json!({"Resource": ["arn:aws:s3:::b/*", "arn:aws:s3:::c"]}),
        json!({"Resource": "arn:aws:s3:::b/${aws:unknown}"}),
        json!({"Resource": "arn:aws:s3:::b/${aws:username"}),
        json!({"Condition": []}),
        json!({"Condition": {"StringEquals": "a"}}),
        json!({"Condition": {"StringMatches": {"s3:prefix": "a"}}}),
        json!({"Condition": {"ForAllValues:StringEquals": {"s3:prefix": "a"}}}),
        json!({"Condition": {"NullIfExists": {"s3:prefix": "true"}}}),
        json!({"Condition": {"StringEquals": {"s3:unknown": "a"}}}),
        json!({"Condition": {"StringEquals": {"s3:prefix": "a", "S3:prefix": "b"}}}),
        json!({"Condition": {"StringEquals": {"s3:prefix": []}}}),
        json!({"Condition": {"StringEquals": {"s3:prefix": {}}}}),
        json!({"Condition": {"NumericEquals": {"s3:prefix": 1}}}),
        json!({"Condition": {"NumericEquals": {"s3:max-keys": "many"}}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}}}),
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "example.com"}}}),
        json!({"Condition": {"Bool": {"aws:SecureTransport": "yes"}}}),
        json!({"Condition": {"Null": {"s3:prefix": "maybe"}}}),
        json!({"Condition": {"DateLessThan": {"aws:CurrentTime": "2020-13-01"}}}),
        json!({"Condition": {"DateLessThan": {"aws:CurrentTime": "2020-01-01T00:00:00+01:00"}}}),
    ] {
        assert!(parsed(with(bad.clone())).is_err(), "{bad}");
    }
    let statement = with(json!({}));
    for bad in [
        json!({"Statement": []}).to_string(),
        json!({"Statement": statement, "Version": "2020-01-01"}).to_string(),
        json!({"Statement": statement, "Extra": 1}).to_string(),
        json!([statement]).to_string(),
        format!("{}{}", json!({"Statement": statement}), " ".repeat(TEXT_MAX)),
        json!({"Statement": statement})
            .to_string()
            .replace("\"Effect\"", "\"Effect\":\"Deny\",\"Effect\""),
        "{".repeat(1000),
        String::new(),
    ] {
        assert!(Policy::parse(&bad, "b").is_err(), "{bad}");
    }
}

#[test]
fn what_is_compared_has_a_bound() {
    let referer = |pattern: String| with(json!({"Condition": {"StringLike": {"aws:Referer": pattern}}}));
    assert!(parsed(referer("r".repeat(VALUE_MAX))).is_ok());
    assert!(parsed(referer("r".repeat(VALUE_MAX + 1))).is_err());
    let mut asked = get("k", Some("alice"));
    let many = parsed(referer("${aws:username}*".repeat(100))).unwrap();
    for (times, verdict) in [(100, Verdict::Allow), (99, Verdict::Silent)] {
        asked.values.insert(Key::Referer, "alice".repeat(times));
        assert_eq!(many.judge(&asked), verdict, "{times}");
    }
}

#[test]
fn a_policy_opens_a_bucket_where_it_allows_anybody_something() {
    let opens = |changes: Value| parsed(with(changes)).unwrap().opens();
    assert!(opens(json!({})));
    assert!(opens(
        json!({"Condition": {"StringEquals": {"aws:username": "a"}}})
    ));
    assert!(!opens(json!({"Principal": {"AWS": ALICE}})));
    assert!(!opens(json!({"Effect": "Deny"})));
    assert!(!opens(
        json!({"Effect": "Deny", "Principal": null, "NotPrincipal": {"AWS": ALICE}})
    ));
    assert!(!Policy::closed().opens());
}

#[test]
fn a_policy_is_public_where_anybody_is_meant() {
    let public = |changes: Value| parsed(with(changes)).unwrap().is_public();
    assert!(public(json!({})));
    assert!(public(
        json!({"Condition": {"StringLike": {"aws:Referer": "https://a/*"}}})
    ));
    assert!(public(
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}})
    ));
    assert!(public(
        json!({"Condition": {"StringLike": {"aws:username": "a*"}}})
    ));
    assert!(public(
        json!({"Condition": {"StringNotEquals": {"aws:username": "a"}}})
    ));
    assert!(public(
        json!({"Condition": {"StringEqualsIfExists": {"aws:username": "a"}}})
    ));
    assert!(public(json!({"Condition": {"Null": {"aws:SourceIp": "false"}}})));
    assert!(!public(
        json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}})
    ));
    assert!(!public(
        json!({"Condition": {"StringEquals": {"aws:username": "a"}}})
    ));
    assert!(!public(json!({"Principal": {"AWS": ALICE}})));
    assert!(!public(json!({"Effect": "Deny"})));
    let named = parsed(with(
        json!({"Principal": {"AWS": [ALICE], "CanonicalUser": "bob"}}),
    ))
    .unwrap();
    assert_eq!(named.users().into_iter().collect::<Vec<_>>(), ["alice", "bob"]);
}

/// Matches by trying everything.
fn naive(pattern: &[char], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => (0..=text.len()).any(|n| naive(rest, &text[n..])),
        (Some(('?', rest)), Some((_, more))) => naive(rest, more),
        (Some((c, rest)), Some((d, more))) => c == d && naive(rest, more),
        _ => false,
    }
}

proptest::proptest! {
    #[test]
    fn wildcards_fit_what_they_say(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        proptest::prop_assert_eq!(pattern::wild(&pattern, &text), naive(&chars(&pattern), &chars(&text)));
    }

    /// A text with something cut out or put in is a policy or is refused.
    #[test]
    fn no_text_is_too_odd(at in 0usize..400, cut in 0usize..20, put in ".{0,6}") {
        let condition = json!({"StringLike": {"s3:prefix": ["a*", "${aws:username}"]}, "IpAddress": {"aws:SourceIp": "10.0.0.0/8"},
                               "DateLessThan": {"aws:CurrentTime": "2030-01-31T10:20:30Z"}});
        let whole = json!({"Version": "2012-10-17", "Statement": [with(json!({"Condition": condition}))]}).to_string();
        let mut chars: Vec<char> = whole.chars().collect();
        let at = at.min(chars.len());
        let end = (at + cut).min(chars.len());
        chars.splice(at..end, put.chars());
        let text: String = chars.into_iter().collect();
        if let Ok(policy) = Policy::parse(&text, "b") {
            policy.judge(&get("k", Some("alice")));
        }
    }
}

#[test]
fn roles_and_their_sessions_are_principals() {
    let of = |principal: Value, user: &str| judged(json!({"Principal": principal}), &get("k", Some(user)));
    let session = "assumed-role/r/se";
    let by_session = json!({"AWS": "arn:aws:sts:::assumed-role/r/se"});
    let by_role = json!({"AWS": ["arn:aws:iam:::role/r", ALICE]});
    for named in [by_session.clone(), by_role.clone(), json!("*")] {
        assert_eq!(of(named, session), Verdict::Allow);
    }
    assert_eq!(of(by_session.clone(), "assumed-role/r/other"), Verdict::Silent);
    assert_eq!(of(by_role.clone(), "assumed-role/r/other"), Verdict::Allow);
    for other in ["r", "se", "assumed-role/rr/se", "assumed-role/s/r"] {
        assert_eq!(of(by_session.clone(), other), Verdict::Silent, "{other}");
        assert_eq!(of(by_role.clone(), other), Verdict::Silent, "{other}");
    }
    assert_eq!(
        of(json!({"AWS": ALICE}), "assumed-role/alice/alice"),
        Verdict::Silent
    );
    let policy = parsed(with(json!({"Principal": by_role}))).unwrap();
    assert_eq!(policy.users().into_iter().collect::<Vec<_>>(), ["alice"]);
    assert_eq!(policy.roles().into_iter().collect::<Vec<_>>(), ["r"]);
    let policy = parsed(with(json!({"Principal": by_session}))).unwrap();
    assert_eq!(policy.roles().into_iter().collect::<Vec<_>>(), ["r"]);
    for bad in [
        json!({"AWS": "arn:aws:iam:::role/*"}),
        json!({"AWS": "arn:aws:iam:::role/a/b"}),
        json!({"AWS": "arn:aws:sts:::assumed-role/r"}),
        json!({"AWS": "arn:aws:sts:::assumed-role/r/*"}),
        json!({"AWS": "arn:aws:sts:::assumed-role/r/s/t"}),
        json!({"CanonicalUser": "role/r"}),
        json!({"CanonicalUser": "assumed-role/r/se"}),
    ] {
        assert!(parsed(with(json!({"Principal": bad}))).is_err(), "{bad}");
    }
}

#[test]
fn a_user_is_denied_by_name_in_his_roles_too() {
    let denies = |principals: Value, user: &str| {
        let mut statement = with(principals);
        statement["Effect"] = "Deny".into();
        parsed(statement)
            .unwrap()
            .denies_named(&get("k", Some("assumed-role/r/se")), user)
    };
    let named = json!({"Principal": {"AWS": ALICE}});
    assert!(denies(named.clone(), "alice"));
    assert!(!denies(named.clone(), "bob"));
    assert!(!denies(
        json!({"Principal": null, "NotPrincipal": {"AWS": "arn:aws:iam:::role/r"}}),
        "alice"
    ));
    let allows = parsed(with(named)).unwrap();
    assert!(!allows.denies_named(&get("k", Some("assumed-role/r/se")), "alice"));
}

#[test]
fn who_may_take_a_role_is_said_by_a_policy_of_one_action() {
    let of = |changes: Value| {
        let mut statement =
            json!({"Effect": "Allow", "Principal": {"AWS": ALICE}, "Action": "sts:AssumeRole"});
        for (name, value) in changes.as_object().unwrap() {
            statement[name] = value.clone();
        }
        Policy::of_trust(&json!({"Version": "2012-10-17", "Statement": [statement]}).to_string())
    };
    let good = of(json!({})).unwrap();
    assert_eq!(good.judge(&get("k", Some("alice"))), Verdict::Allow);
    assert_eq!(good.judge(&get("k", Some("bob"))), Verdict::Silent);
    assert_eq!(good.judge(&get("k", None)), Verdict::Silent);
    assert!(of(json!({"Action": ["sts:*", "*"]})).is_ok());
    for (operator, key, value) in [
        ("DateLessThan", "aws:CurrentTime", "2030-01-01T00:00:00Z"),
        ("DateLessThan", "aws:EpochTime", "1"),
        ("StringLike", "aws:PrincipalArn", "*"),
        ("Bool", "aws:SecureTransport", "true"),
        ("IpAddress", "AWS:sourceip", "10.0.0.0/8"),
        ("StringLike", "aws:UserAgent", "a*"),
        ("StringEquals", "aws:username", "alice"),
    ] {
        let held = of(json!({"Condition": {operator: {key: value}}}));
        assert!(held.is_ok(), "{key}: {held:?}");
    }
    for bad in [
        json!({"Action": "s3:GetObject"}),
        json!({"Action": ["sts:AssumeRole", "sts:TagSession"]}),
        json!({"Resource": "*"}),
        json!({"NotPrincipal": {"AWS": ALICE}}),
        json!({"Principal": {"AWS": "arn:aws:iam:::role/r"}}),
        json!({"Principal": {"AWS": "arn:aws:sts:::assumed-role/r/se"}}),
        json!({"Condition": {"StringEquals": {"sts:ExternalId": "x"}}}),
        json!({"Condition": {"StringNotEquals": {"aws:Referer": "x"}}}),
        json!({"Condition": {"Null": {"s3:prefix": "true"}}}),
    ] {
        assert!(of(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn rights_are_of_all_buckets_and_have_no_principals() {
    let of = |changes: Value| {
        let statement = with(changes);
        Policy::of_rights(&json!({"Statement": statement}).to_string())
    };
    let none = json!({"Principal": null});
    assert_eq!(of(none).unwrap().judge(&get("k", Some("x"))), Verdict::Allow);
    for good in ["*", "arn:aws:s3:::other/*", "arn:aws:s3:::*"] {
        assert!(of(json!({"Principal": null, "Resource": good})).is_ok(), "{good}");
    }
    for bad in [
        json!({}),
        json!({"Principal": null, "Resource": "arn:aws:iam:::user/a"}),
        json!({"Principal": null, "Action": "iam:CreateUser"}),
        json!({"Principal": null, "Resource": null}),
    ] {
        assert!(of(bad.clone()).is_err(), "{bad}");
    }
}

/// Policies that were put when nothing asked for it have to be read still.
#[test]
fn actions_of_no_bucket_need_no_resource_that_fits() {
    for action in ["s3:CreateBucket", "s3:ListAllMyBuckets"] {
        assert!(parsed(with(json!({"Action": action}))).is_ok(), "{action}");
    }
}

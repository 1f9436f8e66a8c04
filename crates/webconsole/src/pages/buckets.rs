//! Buckets and users of the object gateway. To be read.

use crate::buckets::{Bucket, Listed, Quota, User};
use crate::cluster::Asked;
use crate::show::{self, Tone, anchor, bytes, cell, count, num, section, span, tag};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use std::rc::Rc;

/// Of a page.
const SHOWN_MAX: u64 = 50;
/// Seldom: each row is some reads.
const REFRESH_SECS: u32 = 300;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let Some(gateway) = &visit.buckets else {
        let words = "There is no object gateway: skep up --s3 begins one.";
        return Drawn::new("Buckets", show::none(words));
    };
    let client = visit.client();
    let (bucket, user) = (visit.query.get("after"), visit.query.get("after-user"));
    let (buckets, users) = tokio::join!(
        gateway.buckets(client, bucket, SHOWN_MAX),
        gateway.users(client, user, SHOWN_MAX)
    );
    let now = visit.wall.as_secs();
    let of_buckets = part(&buckets, "buckets", |listed| {
        let rows: Vec<Markup> = listed.iter().map(|(name, b)| of_bucket(name, b, now)).collect();
        let heads = [
            "Bucket",
            "Owner",
            "#Objects",
            "#Bytes",
            "Quota",
            "Versioning",
            "Public",
            "Policy",
            "#Index parts",
            "Age",
        ];
        show::table("Buckets", &heads, &rows)
    });
    let of_users = part(&users, "users", |listed| {
        let rows: Vec<Markup> = listed.iter().map(|(name, u)| of_user(name, u, now)).collect();
        let heads = [
            "User",
            "Name",
            "#Keys",
            "#Buckets",
            "Quota",
            "Quota of each bucket",
            "Age",
        ];
        show::table("Users", &heads, &rows)
    });
    let body = html! {
        (section("buckets", "Buckets", &html! { (of_buckets) (ways(&buckets, bucket, |at| [("after", at), ("after-user", user)])) }))
        (section("users", "Users", &html! { (of_users) (ways(&users, user, |at| [("after", bucket), ("after-user", at)])) }))
    };
    Drawn::new("Buckets", show::live(&visit, REFRESH_SECS, &body))
}

type Row<T> = (String, Result<T, String>);

fn part<T>(asked: &Asked<Listed<T>>, what: &str, table: impl FnOnce(&[Row<T>]) -> Markup) -> Markup {
    show::asked(asked, |listed| match listed.shown.is_empty() {
        true => show::none(&format!("No {what} here.")),
        false => table(listed.shown.as_slice()),
    })
}

/// To the beginning of a list and to what comes next, while the other list stays where it is.
fn ways<'a, T>(
    asked: &'a Asked<Listed<T>>,
    after: &'a str,
    at: impl Fn(&'a str) -> [(&'static str, &'a str); 2],
) -> Markup {
    let Ok(listed) = asked else { return html! {} };
    let next = listed.shown.last().filter(|_| listed.more);
    html! {
        @if next.is_some() || !after.is_empty() {
            p {
                @if !after.is_empty() { (anchor("/buckets", &at(""), "First")) " " }
                @if let Some((name, _)) = next { (anchor("/buckets", &at(name.as_str()), "Next")) }
            }
        }
    }
}

fn of_bucket(name: &str, bucket: &Result<Bucket, String>, now: u64) -> Markup {
    let b = match bucket {
        Ok(b) => b,
        Err(why) => return html! { (show::head(&html! { (name) })) td colspan="9" { "Not shown: " (why) } },
    };
    let (objects, held) = match b.held {
        Some((objects, held)) => (count(objects), bytes(held)),
        None => ("not counted".into(), "not counted".into()),
    };
    let mut kept = vec![b.versioning.as_str()];
    kept.extend(b.locked.then_some("object lock"));
    kept.extend(b.encrypted.then_some("encrypted"));
    html! {
        (show::head(&html! { (name) @if b.deleting { " " (tag(Tone::Warn, "being deleted")) } }))
        (cell(&b.owner))
        (num(objects))
        (num(held))
        (cell(quota(b.quota)))
        (cell(kept.join(", ")))
        td { @if b.public.is_empty() { "no" } @else { (tag(Tone::Warn, format!("by {}", b.public.join(", ")))) } }
        (cell(if b.policy { "yes" } else { "no" }))
        (num(format!("{}{}", b.parts, if b.more_parts { " and more" } else { "" })))
        (cell(span(now.saturating_sub(b.created / 1000))))
    }
}

fn of_user(name: &str, user: &Result<User, String>, now: u64) -> Markup {
    let u = match user {
        Ok(u) => u,
        Err(why) => return html! { (show::head(&html! { (name) })) td colspan="6" { "Not shown: " (why) } },
    };
    html! {
        (show::head(&html! { (name) }))
        (cell(&u.display))
        (num(u.keys))
        (num(u.buckets))
        @for q in u.quotas { (cell(quota(q))) }
        (cell(span(now.saturating_sub(u.created / 1000))))
    }
}

fn quota(quota: Quota) -> String {
    let parts: Vec<String> = [
        quota.bytes.map(bytes),
        quota.objects.map(|n| format!("{n} objects")),
    ]
    .into_iter()
    .flatten()
    .collect();
    match parts.is_empty() {
        true => "none".into(),
        false => parts.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_there_is() {
        let bucket = Bucket {
            owner: "<u>".into(),
            held: Some((2, 2048)),
            quota: Quota {
                bytes: Some(1 << 20),
                objects: Some(9),
            },
            versioning: "on".into(),
            locked: true,
            public: vec!["ACL".into(), "policy".into()],
            parts: 3,
            ..Bucket::default()
        };
        let text = of_bucket("b", &Ok(bucket.clone()), 60).into_string();
        for part in [
            "&lt;u&gt;",
            ">2<",
            "2.0 KiB",
            "1.0 MiB, 9 objects",
            "on, object lock",
            "by ACL, policy",
            ">3<",
            "60 s",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let gone = Bucket {
            deleting: true,
            more_parts: true,
            ..Bucket::default()
        };
        let text = of_bucket("b", &Ok(gone), 0).into_string();
        assert!(
            text.contains("being deleted") && text.contains("not counted") && text.contains("0 and more"),
            "{text}"
        );
        assert!(
            of_bucket("b", &Err("why".into()), 0)
                .into_string()
                .contains("Not shown: why")
        );
    }

    #[test]
    fn lists_go_on_where_they_ended() {
        let listed = |more| {
            Ok(Listed {
                shown: vec![("a&b".to_string(), Ok(()))],
                more,
            })
        };
        fn at(after: &str) -> [(&'static str, &str); 2] {
            [("after", after), ("after-user", "u")]
        }
        let text = ways(&listed(true), "", at).into_string();
        assert!(
            text.contains("/buckets?after=a%26b&amp;after-user=u") && !text.contains("First"),
            "{text}"
        );
        assert!(ways(&listed(false), "x", at).into_string().contains("First"));
        assert_eq!(ways(&listed(false), "", at).into_string(), "");
        assert_eq!(ways::<()>(&Err("no".into()), "x", at).into_string(), "");
    }
}

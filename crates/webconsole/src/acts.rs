//! Acts: what a form asks for, read into one change with its words. Pure; who may, and whether he is sure, is looked at before.
//!
//! What cannot be undone, or is felt at once, wants a second page that says what happens. Changes of the cluster are commands of the
//! monitor; changes of images are calls of `rbd`. Each says which command of `ceph` or `rbd` does the same.

use crate::cluster::command;
use crate::web::{Fields, link};
use serde_json::json;

/// Flags that hold up the cluster's own work, and nobody's data: they are safe to set and unset.
pub const FLAGS: [(&str, &str); 7] = [
    (
        "noout",
        "OSDs that are down stay in: nothing moves while a machine is away",
    ),
    ("norebalance", "data does not move to where it belongs better"),
    ("norecover", "missing copies are not made"),
    ("nobackfill", "copies are not moved"),
    ("noscrub", "copies are not compared"),
    ("nodeep-scrub", "copies are not read and compared"),
    ("nosnaptrim", "data of removed snapshots stay"),
];
const NAME_BYTES_MAX: usize = 255;

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub pool: String,
    pub namespace: String,
}

impl Place {
    fn of(form: &Fields) -> Result<Self, String> {
        Ok(Self {
            pool: name(form, "pool", "a pool")?,
            namespace: form.get("namespace").to_string(),
        })
    }

    /// As `rbd` writes it.
    pub fn spec(&self, image: &str) -> String {
        match self.namespace.as_str() {
            "" => format!("{}/{image}", self.pool),
            ns => format!("{}/{ns}/{image}", self.pool),
        }
    }

    pub fn images_link(&self) -> String {
        link("/images", &[("pool", &self.pool), ("namespace", &self.namespace)])
    }

    pub fn image_link(&self, image: &str) -> String {
        link(
            "/image",
            &[
                ("pool", &self.pool),
                ("namespace", &self.namespace),
                ("image", image),
            ],
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageStep {
    Create {
        image: String,
        size: u64,
    },
    Resize {
        image: String,
        size: u64,
        shrink: bool,
    },
    CreateSnap {
        image: String,
        snap: String,
    },
    RemoveSnap {
        image: String,
        snap: String,
    },
    ProtectSnap {
        image: String,
        snap: String,
        protect: bool,
    },
    Clone {
        image: String,
        snap: String,
        to: Place,
        name: String,
    },
    Trash {
        image: String,
    },
    Restore {
        id: String,
        name: String,
    },
}

impl ImageStep {
    /// The image that is there already, and its snapshot, by their names.
    pub fn about(&self) -> Option<(&str, Option<&str>)> {
        match self {
            Self::Create { .. } | Self::Restore { .. } => None,
            Self::Resize { image, .. } | Self::CreateSnap { image, .. } | Self::Trash { image } => {
                Some((image, None))
            }
            Self::RemoveSnap { image, snap }
            | Self::ProtectSnap { image, snap, .. }
            | Self::Clone { image, snap, .. } => Some((image, Some(snap))),
        }
    }
}

/// What the names of a form stood for when its page was drawn; each empty where the form does not say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub image: Option<String>,
    pub snap: Option<u64>,
}

impl Seen {
    fn of(form: &Fields) -> Result<Self, String> {
        let said = |field: &str| Some(form.get(field)).filter(|text| !text.is_empty());
        let snap = said("snap-id").map(str::parse).transpose();
        Ok(Self {
            image: said("image-id").map(str::to_string),
            snap: snap.map_err(|_| "That is no number of a snapshot.")?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A command of the monitor, as JSON.
    Order(String),
    Image(Place, ImageStep, Seen),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    pub title: String,
    /// What happens, and how it is undone.
    pub effect: String,
    /// What does the same.
    pub command: String,
    /// It wants a second page.
    pub confirm: bool,
    /// Where the browser goes afterwards.
    pub back: String,
    pub step: Step,
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./@:=+".contains(&b);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// As it was given: `db ` is another one than `db`.
fn name(form: &Fields, field: &str, what: &str) -> Result<String, String> {
    let text = form.get(field);
    match text.len() {
        0 => Err(format!("The name of {what} is missing.")),
        1..=NAME_BYTES_MAX => Ok(text.to_string()),
        _ => Err(format!(
            "The name of {what} is longer than {NAME_BYTES_MAX} bytes."
        )),
    }
}

/// `20G`, `1.5T`, `512M`: powers of 1024; a number alone is in MiB, as for `rbd`.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("{text:?} is no size: write it as 20G, 512M or 1.5T.");
    let short = text.trim_end_matches(['B', 'b']).trim_end_matches(['i', 'I']);
    let at = short
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(short.len());
    let (number, unit) = short.split_at(at);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "M" => 20,
        "K" => 10,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(wrong()),
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    let bytes = value * (1u64 << shift) as f64;
    match bytes > 0.0 && bytes < 9e18 {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// What a form asks for.
pub fn read(form: &Fields) -> Result<Act, String> {
    match form.get("act") {
        "osd-in" | "osd-out" => in_or_out(form),
        "flag-set" | "flag-unset" => flag(form),
        "image-create" => create(form),
        "image-resize" => resize(form),
        "snap-create" => create_snap(form),
        "snap-remove" => remove_snap(form),
        "snap-protect" => protect(form, true),
        "snap-unprotect" => protect(form, false),
        "image-clone" => clone(form),
        "image-trash" => trash(form),
        "trash-restore" => restore(form),
        other => Err(format!("There is no act {other:?}.")),
    }
}

fn in_or_out(form: &Fields) -> Result<Act, String> {
    let osd: u32 = form
        .get("osd")
        .parse()
        .map_err(|_| "That is no number of an OSD.")?;
    let (word, effect) = match form.get("act") {
        "osd-in" => (
            "in",
            "gets data again: copies move to it, beside what clients do. \"Take out\" undoes it.",
        ),
        _ => (
            "out",
            "gives its data away: copies are made on other OSDs, which takes their room and time. It goes on \
                      serving meanwhile. \"Take in\" undoes it.",
        ),
    };
    Ok(Act {
        title: format!("Take osd.{osd} {word}"),
        effect: format!("osd.{osd} {effect}"),
        command: format!("ceph osd {word} {osd}"),
        confirm: true,
        back: back(form, "/osds"),
        step: Step::Order(command(
            &format!("osd {word}"),
            &[("ids", json!([osd.to_string()]))],
        )),
    })
}

/// Doctor and OSDs ask for the same.
fn back(form: &Fields, other: &str) -> String {
    match form.get("from") {
        "doctor" => "/doctor".to_string(),
        _ => other.to_string(),
    }
}

fn flag(form: &Fields) -> Result<Act, String> {
    let named = FLAGS.iter().find(|(name, _)| *name == form.get("flag"));
    let (flag, meaning) = named.ok_or("That is none of the flags that are set and unset here.")?;
    let (word, effect) = match form.get("act") {
        "flag-set" => ("set", format!("While {flag} is set, {meaning}.")),
        _ => ("unset", format!("It ends that {meaning}.")),
    };
    Ok(Act {
        title: format!("{} {flag}", if word == "set" { "Set" } else { "Unset" }),
        effect,
        command: format!("ceph osd {word} {flag}"),
        confirm: true,
        back: "/doctor".into(),
        step: Step::Order(command(&format!("osd {word}"), &[("key", json!(flag))])),
    })
}

fn of_image(form: &Fields) -> Result<(Place, String), String> {
    Ok((Place::of(form)?, name(form, "image", "the image")?))
}

fn create(form: &Fields) -> Result<Act, String> {
    let (place, image) = of_image(form)?;
    let size_text = form.get("size").trim();
    let size = size(size_text)?;
    let spec = place.spec(&image);
    Ok(Act {
        title: format!("Create image {spec}"),
        effect: format!("An empty image of {}.", crate::show::bytes(size)),
        command: format!("rbd create --size {} {}", quoted(size_text), quoted(&spec)),
        confirm: false,
        back: place.image_link(&image),
        step: Step::Image(place, ImageStep::Create { image, size }, Seen::of(form)?),
    })
}

fn resize(form: &Fields) -> Result<Act, String> {
    let (place, image) = of_image(form)?;
    let size_text = form.get("size").trim();
    let size = size(size_text)?;
    let shrink = form.get("shrink") == "yes";
    let spec = place.spec(&image);
    let effect = match shrink {
        true => {
            "If that is less than now, what lies behind it is lost for ever, and file systems there break."
        }
        false => "It only grows: what is in it stays. File systems in it have to be told by themselves.",
    };
    Ok(Act {
        title: format!("Resize image {spec} to {}", crate::show::bytes(size)),
        effect: effect.into(),
        command: format!(
            "rbd resize {}--size {} {}",
            if shrink { "--allow-shrink " } else { "" },
            quoted(size_text),
            quoted(&spec)
        ),
        confirm: shrink,
        back: place.image_link(&image),
        step: Step::Image(place, ImageStep::Resize { image, size, shrink }, Seen::of(form)?),
    })
}

/// Of one snapshot of an image.
fn of_snap(
    form: &Fields,
    (title, effect, rbd): (&str, &str, &str),
    confirm: bool,
    step: fn(String, String) -> ImageStep,
) -> Result<Act, String> {
    let (place, image) = of_image(form)?;
    let snap = name(form, "snap", "the snapshot")?;
    let spec = format!("{}@{snap}", place.spec(&image));
    Ok(Act {
        title: format!("{title} snapshot {spec}"),
        effect: effect.into(),
        command: format!("rbd snap {rbd} {}", quoted(&spec)),
        confirm,
        back: place.image_link(&image),
        step: Step::Image(place, step(image, snap), Seen::of(form)?),
    })
}

fn create_snap(form: &Fields) -> Result<Act, String> {
    let words = ("Create", "What is written up to now is kept.", "create");
    of_snap(form, words, false, |image, snap| ImageStep::CreateSnap {
        image,
        snap,
    })
}

fn remove_snap(form: &Fields) -> Result<Act, String> {
    let effect = "What only the snapshot keeps is lost for ever. The image stays as it is.";
    of_snap(form, ("Remove", effect, "rm"), true, |image, snap| {
        ImageStep::RemoveSnap { image, snap }
    })
}

fn protect(form: &Fields, protect: bool) -> Result<Act, String> {
    match protect {
        true => of_snap(
            form,
            (
                "Protect",
                "It cannot be removed while it is protected.",
                "protect",
            ),
            false,
            |image, snap| ImageStep::ProtectSnap {
                image,
                snap,
                protect: true,
            },
        ),
        false => of_snap(
            form,
            ("Unprotect", "It can be removed then.", "unprotect"),
            false,
            |image, snap| ImageStep::ProtectSnap {
                image,
                snap,
                protect: false,
            },
        ),
    }
}

fn clone(form: &Fields) -> Result<Act, String> {
    let (place, image) = of_image(form)?;
    let snap = name(form, "snap", "the snapshot")?;
    let to = Place {
        pool: name(form, "to-pool", "the clone's pool")?,
        namespace: form.get("to-namespace").to_string(),
    };
    let new = name(form, "to-image", "the clone")?;
    let (from, spec) = (format!("{}@{snap}", place.spec(&image)), to.spec(&new));
    Ok(Act {
        title: format!("Clone {from} to {spec}"),
        effect: "A new image that reads from the snapshot what it has not written itself.".into(),
        command: format!(
            "rbd clone --rbd-default-clone-format 2 {} {}",
            quoted(&from),
            quoted(&spec)
        ),
        confirm: false,
        back: to.image_link(&new),
        step: Step::Image(
            place,
            ImageStep::Clone {
                image,
                snap,
                to,
                name: new,
            },
            Seen::of(form)?,
        ),
    })
}

fn trash(form: &Fields) -> Result<Act, String> {
    let (place, image) = of_image(form)?;
    let spec = place.spec(&image);
    Ok(Act {
        title: format!("Move image {spec} to the trash"),
        effect: "Nobody finds it by its name any more. Its data stay, and it can be restored, until somebody removes it from the trash \
                 (rbd trash rm). An image that somebody has open is not moved."
            .into(),
        command: format!("rbd trash mv {}", quoted(&spec)),
        confirm: true,
        back: place.images_link(),
        step: Step::Image(place, ImageStep::Trash { image }, Seen::of(form)?),
    })
}

fn restore(form: &Fields) -> Result<Act, String> {
    let place = Place::of(form)?;
    let id = name(form, "id", "the image in the trash")?;
    let as_name = name(form, "image", "the image")?;
    let spec = place.spec(&id);
    Ok(Act {
        title: format!("Restore {} from the trash", place.spec(&as_name)),
        effect: "It has its name again.".into(),
        command: format!("rbd trash restore --image {} {}", quoted(&as_name), quoted(&spec)),
        confirm: false,
        back: place.image_link(&as_name),
        step: Step::Image(place, ImageStep::Restore { id, name: as_name }, Seen::of(form)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(pairs: &[(&str, &str)]) -> Result<Act, String> {
        read(&Fields::of(pairs))
    }

    #[test]
    fn sizes() {
        for (text, want) in [
            ("20G", 20 << 30),
            ("512", 512 << 20),
            ("1.5 TiB", 3 << 39),
            ("64M", 64 << 20),
            ("4 kb", 4096),
        ] {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "G", "-1G", "0", "1e30", "9 bananas", "NaN", "inf", "1G; rm"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn commands_say_the_same() {
        let check = |pairs: &[(&str, &str)], command: &str, confirm: bool| {
            let act = act(pairs).unwrap();
            assert_eq!((act.command.as_str(), act.confirm), (command, confirm));
        };
        check(&[("act", "osd-out"), ("osd", "3")], "ceph osd out 3", true);
        check(
            &[("act", "flag-unset"), ("flag", "noout")],
            "ceph osd unset noout",
            true,
        );
        let at = [("pool", "vms"), ("image", "a b")];
        let with = |more: &[(&'static str, &'static str)]| [&at[..], more].concat();
        check(
            &with(&[("act", "image-create"), ("size", "1G")]),
            "rbd create --size 1G 'vms/a b'",
            false,
        );
        check(
            &with(&[("act", "image-resize"), ("size", "2G")]),
            "rbd resize --size 2G 'vms/a b'",
            false,
        );
        check(
            &with(&[("act", "image-resize"), ("size", "1M"), ("shrink", "yes")]),
            "rbd resize --allow-shrink --size 1M 'vms/a b'",
            true,
        );
        check(
            &with(&[("act", "snap-remove"), ("snap", "it's")]),
            "rbd snap rm 'vms/a b@it'\\''s'",
            true,
        );
        check(
            &with(&[("act", "image-trash"), ("namespace", "ns")]),
            "rbd trash mv 'vms/ns/a b'",
            true,
        );
    }

    #[test]
    fn what_is_no_act_is_refused() {
        for pairs in [
            &[][..],
            &[("act", "pool-delete"), ("pool", "vms")],
            &[("act", "osd-out"), ("osd", "-1")],
            &[("act", "osd-out"), ("osd", "1 2")],
            &[("act", "flag-set"), ("flag", "pause")],
            &[("act", "flag-set"), ("flag", "")],
            &[("act", "image-create"), ("pool", "vms"), ("size", "1G")],
            &[("act", "image-trash"), ("image", "a")],
            &[("act", "trash-restore"), ("pool", "vms"), ("image", "a")],
        ] {
            assert!(act(pairs).is_err(), "{pairs:?}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert!(act(&[("act", "image-trash"), ("pool", "vms"), ("image", &long)]).is_err());
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let form = [
            ("act", "image-trash"),
            ("pool", " p"),
            ("namespace", "n "),
            ("image", "db "),
        ];
        let done = act(&form).unwrap();
        assert_eq!(done.command, "rbd trash mv ' p/n /db '");
        let place = Place {
            pool: " p".into(),
            namespace: "n ".into(),
        };
        let step = ImageStep::Trash { image: "db ".into() };
        assert_eq!(done.step, Step::Image(place, step, Seen::default()));
    }

    #[test]
    fn forms_say_which_image_they_are_about() {
        let form = [
            ("act", "snap-remove"),
            ("pool", "p"),
            ("image", "i"),
            ("snap", "s"),
        ];
        let with = |id: &str, snap: &str| act(&[&form[..], &[("image-id", id), ("snap-id", snap)]].concat());
        let Step::Image(_, step, seen) = with("1a2b", "7").unwrap().step else {
            panic!("an act of an image");
        };
        assert_eq!(step.about(), Some(("i", Some("s"))));
        assert_eq!((seen.image.as_deref(), seen.snap), (Some("1a2b"), Some(7)));
        assert!(with("1a2b", "seven").is_err());
    }

    #[test]
    fn the_way_back_is_ours() {
        let act = act(&[("act", "osd-in"), ("osd", "1"), ("from", "https://evil.example")]).unwrap();
        assert_eq!(act.back, "/osds");
    }
}

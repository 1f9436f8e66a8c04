//! Options of one running OSD: told, taken back, and compared.

use super::table::{Answer, Args, Told};
use crate::osd::Osd;
use cluster::options;
use cluster::told::{self, Wish};
use serde_json::{Map, Value, json};
use types::Errno;

pub fn get(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let key = args.text("var");
    let value = osd
        .options()
        .remove(key)
        .or_else(|| osd.told_options.get(key).cloned());
    value.map(|v| json!({key: v}).into()).ok_or_else(|| {
        let why = format!("error getting '{key}': (2) No such file or directory");
        (Errno::ENOENT, why)
    })
}

pub fn show(osd: &mut Osd, _: &Args<'_>) -> Answer {
    Ok(json!(osd.options()).into())
}

pub fn set(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let wish = told::set(args.text("var"), &args.list("val").join(" "))?;
    room(osd, 1)?;
    let said = go_by(osd, wish);
    Ok(json!({"success": said}).into())
}

pub fn unset(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let name = told::unset(args.text("var"))?;
    let said = match osd.told_options.remove(&name) {
        None => String::new(),
        Some(_) => {
            told_anew(osd);
            change(osd, &name)
        }
    };
    Ok(Told::Said(json!({}), said))
}

pub fn inject(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let wishes = told::inject(&args.list("injected_args"))?;
    room(osd, wishes.len())?;
    let said: String = wishes.into_iter().map(|w| go_by(osd, w)).collect();
    Ok(Told::Said(json!({}), said))
}

/// As many as there are options, and a debug level for each part of a program that somebody can think of.
const TOLD_MAX: usize = 4096;

fn room(osd: &Osd, more: usize) -> Result<(), (Errno, String)> {
    match osd.told_options.len() + more <= TOLD_MAX {
        true => Ok(()),
        false => Err((Errno::ENOSPC, format!("{TOLD_MAX} options were told already"))),
    }
}

fn go_by(osd: &mut Osd, wish: Wish) -> String {
    osd.told_options.insert(wish.name.clone(), wish.value);
    told_anew(osd);
    change(osd, &wish.name)
}

fn told_anew(osd: &mut Osd) {
    osd.heed_compression();
    osd.ops.past().limits_changed();
    osd.remember_ops();
}

/// What became of an option, in the words of the real one: what nothing here goes by is not observed.
fn change(osd: &Osd, name: &str) -> String {
    let acting = osd.options();
    match acting.get(name) {
        Some(value) => format!("{name} = '{value}' "),
        None => {
            let told = osd.told_options.get(name).cloned();
            let value = told
                .or_else(|| osd.central_option(name))
                .unwrap_or_else(|| default(name));
            format!("{name} = '{value}' (not observed, change may require restart) ")
        }
    }
}

fn default(name: &str) -> String {
    options::find(name).map_or_else(String::new, |o| o.default(true).to_string())
}

/// Options that somebody set, here or centrally: what each would be, and what it is. All, or one.
pub fn diff(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let wanted = args.text("var");
    let state = osd.cluster.state();
    let me = osd.auth_name();
    let central = state.options_of(&me);
    let acting = osd.options();
    let mut out = Map::new();
    let names = central
        .keys()
        .copied()
        .chain(osd.told_options.keys().map(String::as_str));
    for name in names.filter(|n| wanted.is_empty() || wanted == *n) {
        let mut one = Map::from_iter([("default".to_string(), Value::String(default(name)))]);
        let mut last = None;
        for (source, value) in [
            ("mon", central.get(name).map(|s| s.value.to_string())),
            ("override", osd.told_options.get(name).cloned()),
        ] {
            if let Some(value) = value {
                last = Some(value.clone());
                one.insert(source.into(), Value::String(value));
            }
        }
        let is = acting.get(name).cloned().or(last).unwrap_or_default();
        one.insert("final".into(), Value::String(is));
        out.insert(name.to_string(), Value::Object(one));
    }
    Ok(json!({"diff": out}).into())
}

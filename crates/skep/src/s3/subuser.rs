//! Subusers and their keys, by which users speak Swift: words and fields are those of `radosgw-admin`.

use super::args::{KeyOf, KeyType, SubuserCommand, Whom};
use super::connect::{connect, failed};
use super::show::show;
use ::s3::{Admin, Error as S3Error, Subuser};
use node::Error;
use serde_json::{Value, json};

/// `USER:NAME`.
fn id(whom: &Whom) -> Result<String, Error> {
    match (&whom.uid, whom.subuser.split_once(':')) {
        (None, Some(_)) => Ok(whom.subuser.clone()),
        (Some(uid), Some((user, _))) if uid == user => Ok(whom.subuser.clone()),
        (Some(uid), None) => Ok(format!("{uid}:{}", whom.subuser)),
        _ => Err(failed(
            "--subuser is USER:NAME, of the user of --uid, or a name with --uid",
        )),
    }
}

pub async fn of_subuser(command: &SubuserCommand) -> Result<(), Error> {
    let (SubuserCommand::Create { whom, .. }
    | SubuserCommand::Modify { whom, .. }
    | SubuserCommand::Rm { whom }) = command;
    let id = id(whom)?;
    let client = connect(&whom.how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let accounts = &admin.accounts;
    let told = match command {
        SubuserCommand::Create { access, .. } => {
            accounts.create_subuser(&id, *access).await.map(|s| whole(&s))
        }
        SubuserCommand::Modify { access, .. } => {
            accounts.set_access(&id, *access).await.map(|s| permission(&s))
        }
        SubuserCommand::Rm { .. } => accounts.remove_subuser(&id).await.map(|()| Value::Null),
    };
    client.shutdown().await;
    show(&whom.how, &told.map_err(failed)?);
    Ok(())
}

fn permission(subuser: &Subuser) -> Value {
    json!({"id": subuser.id(), "permissions": subuser.access.name()})
}

fn key(subuser: &Subuser) -> Value {
    json!({"user": subuser.id(), "secret_key": subuser.secret})
}

fn whole(subuser: &Subuser) -> Value {
    json!({"user_id": subuser.user, "subusers": [permission(subuser)], "swift_keys": [key(subuser)]})
}

/// What is said of a user's.
pub fn describe(about: &mut Value, subusers: &[Subuser]) {
    about["subusers"] = subusers.iter().map(permission).collect();
    let keys = subusers.iter().filter(|s| !s.secret.is_empty());
    about["swift_keys"] = keys.map(key).collect();
}

/// The subuser whose key is meant; None: it is one of S3.
pub fn of_key(of: &KeyOf) -> Result<Option<&str>, Error> {
    match (of.key_type, &of.subuser) {
        (Some(KeyType::Swift), Some(id)) => Ok(Some(id)),
        (Some(KeyType::Swift), None) => Err(failed("--key-type swift wants --subuser USER:NAME")),
        (Some(KeyType::S3), Some(_)) => Err(failed("keys of S3 are of users, and not of subusers")),
        (_, _) => Ok(None),
    }
}

pub async fn new_key(admin: &Admin, id: &str) -> Result<Value, S3Error> {
    admin.accounts.new_subuser_key(id).await.map(|s| whole(&s))
}

//! `skep s3 role`, `role-policy` and `caps`: who may take roles, what their sessions may do, and which users make roles themselves. Fields are named as radosgw-admin names them.

use super::args::{CapsCommand, How, RoleCommand, RolePolicyCommand};
use super::connect::{connect, failed};
use super::show::show;
use ::s3::{Admin, Error as S3Error, Role};
use node::Error;
use serde_json::{Value, json};

fn shown(role: &Role) -> Value {
    json!({
        "RoleId": role.id,
        "RoleName": role.name,
        "Arn": format!("arn:aws:iam:::role/{}", role.name),
        "Owner": role.owner,
        "MaxSessionDuration": role.session_max,
        "AssumeRolePolicyDocument": role.trust,
        "Policies": role.policies.keys().collect::<Vec<_>>(),
    })
}

async fn apply(admin: &Admin, command: &RoleCommand) -> Result<Value, S3Error> {
    let accounts = &admin.accounts;
    match command {
        RoleCommand::Create {
            which,
            uid,
            assume_role_policy_doc,
            max_session_duration,
            force,
        } => {
            let (trust, longest) = (&assume_role_policy_doc.0, *max_session_duration);
            let made = accounts.create_role(&which.role_name, uid, trust, longest, *force);
            made.await.map(|r| shown(&r))
        }
        RoleCommand::Get { which } => accounts.any_role(&which.role_name).await.map(|r| shown(&r)),
        RoleCommand::List { .. } => {
            let names = accounts.role_names().await?.into_iter().map(Value::from);
            Ok(Value::Array(names.collect()))
        }
        RoleCommand::Modify {
            which,
            assume_role_policy_doc,
            max_session_duration,
        } => {
            let trust = assume_role_policy_doc.as_ref().map(|d| d.0.as_str());
            if let Some(trust) = trust {
                accounts.check_trust(trust).await?;
            }
            let changed = accounts.change_role(&which.role_name, |role| {
                role.trust = trust.map_or_else(|| role.trust.clone(), str::to_string);
                max_session_duration.map_or(Ok(()), |longest| role.set_session_max(longest))
            });
            changed.await.map(|r| shown(&r))
        }
        RoleCommand::Delete { which } => {
            let removed = accounts.remove_role(&which.role_name, |_| Ok(())).await;
            removed.map(|()| Value::Null)
        }
    }
}

pub async fn of_role(command: &RoleCommand) -> Result<(), Error> {
    let how = match command {
        RoleCommand::List { how } => how,
        RoleCommand::Create { which, .. }
        | RoleCommand::Get { which }
        | RoleCommand::Modify { which, .. }
        | RoleCommand::Delete { which } => &which.how,
    };
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = apply(&admin, command).await;
    client.shutdown().await;
    show(how, &told.map_err(failed)?);
    Ok(())
}

async fn apply_policy(admin: &Admin, command: &RolePolicyCommand) -> Result<Value, S3Error> {
    let accounts = &admin.accounts;
    match command {
        RolePolicyCommand::Put { which, policy_doc } => {
            let changed = accounts.change_role(&which.role.role_name, |role| {
                role.put_policy(&which.policy_name, &policy_doc.0)
            });
            changed.await.map(|_| Value::Null)
        }
        RolePolicyCommand::Get { which } => {
            let role = accounts.any_role(&which.role.role_name).await?;
            let text = role
                .policies
                .get(&which.policy_name)
                .ok_or(S3Error::NoSuchRolePolicy)?;
            Ok(json!({"PolicyName": which.policy_name, "PolicyDocument": text}))
        }
        RolePolicyCommand::List { which } => {
            let role = accounts.any_role(&which.role_name).await?;
            let names = role.policies.into_keys().map(Value::from);
            Ok(Value::Array(names.collect()))
        }
        RolePolicyCommand::Delete { which } => {
            let changed = accounts.change_role(&which.role.role_name, |role| {
                role.policies
                    .remove(&which.policy_name)
                    .map(drop)
                    .ok_or(S3Error::NoSuchRolePolicy)
            });
            changed.await.map(|_| Value::Null)
        }
    }
}

fn how_of(command: &RolePolicyCommand) -> &How {
    match command {
        RolePolicyCommand::List { which } => &which.how,
        RolePolicyCommand::Put { which, .. }
        | RolePolicyCommand::Get { which }
        | RolePolicyCommand::Delete { which } => &which.role.how,
    }
}

pub async fn of_policy(command: &RolePolicyCommand) -> Result<(), Error> {
    let how = how_of(command);
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = apply_policy(&admin, command).await;
    client.shutdown().await;
    show(how, &told.map_err(failed)?);
    Ok(())
}

pub async fn of_caps(command: &CapsCommand) -> Result<(), Error> {
    let (CapsCommand::Add { whose } | CapsCommand::Rm { whose }) = command;
    let gives = matches!(command, CapsCommand::Add { .. });
    let client = connect(&whose.how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = admin.accounts.change_caps(&whose.uid, &whose.caps, gives).await;
    client.shutdown().await;
    let told = told.map_err(failed)?;
    show(&whose.how, &json!({"user_id": whose.uid, "caps": told.text()}));
    Ok(())
}

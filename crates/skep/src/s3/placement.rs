//! `skep s3 placement`: storage classes of objects. The words are radosgw-admin's.

use super::args::PlacementCommand;
use super::connect::{connect, failed};
use crate::options::Format;
use ::s3::{Admin, Class, DATA_POOL, Error as S3Error, STANDARD};
use node::Error;
use serde_json::{Map, Value, json};

fn shown(class: &Class) -> Value {
    json!({"data_pool": class.pool, "takes_new": !class.withdrawn})
}

fn named(name: &str, class: &Class) -> Value {
    let mut all = Map::new();
    all.insert(name.to_string(), shown(class));
    Value::Object(all)
}

async fn apply(admin: &Admin, command: &PlacementCommand) -> Result<Value, S3Error> {
    match command {
        PlacementCommand::Add {
            storage_class,
            data_pool,
            ..
        } => {
            let class = admin.add_class(storage_class, data_pool).await?;
            Ok(named(storage_class, &class))
        }
        PlacementCommand::Rm { storage_class, .. } => {
            let class = admin.withdraw_class(storage_class).await?;
            Ok(named(storage_class, &class))
        }
        PlacementCommand::Ls { .. } => {
            let standard = json!({"data_pool": DATA_POOL, "takes_new": true});
            let mut all = Map::from_iter([(STANDARD.to_string(), standard)]);
            let classes = admin.classes().await?;
            all.extend(classes.iter().map(|(name, class)| (name.clone(), shown(class))));
            Ok(Value::Object(all))
        }
    }
}

pub async fn of_classes(command: &PlacementCommand) -> Result<(), Error> {
    let (PlacementCommand::Add { how, .. } | PlacementCommand::Ls { how } | PlacementCommand::Rm { how, .. }) =
        command;
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = apply(&admin, command).await;
    client.shutdown().await;
    let told = told.map_err(failed)?;
    if how.format == Format::Json {
        println!("{told:#}");
        return Ok(());
    }
    for (name, class) in told.as_object().into_iter().flatten() {
        let pool = class["data_pool"].as_str().unwrap_or_default();
        match class["takes_new"] == json!(true) {
            true => println!("{name:<20} {pool}"),
            false => println!("{name:<20} {pool}  takes nothing new"),
        }
    }
    Ok(())
}

//! Writes the seeds as files, for `cargo fuzz`: `cargo run -p hostile --example corpus -- fuzz/corpus`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let to = std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into());
    for target in hostile::TARGETS {
        let dir = Path::new(&to).join(target.name);
        std::fs::create_dir_all(&dir)?;
        let seeds = (target.seeds)();
        for (i, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{i:04}")), seed)?;
        }
        println!("{}: {} seeds", dir.display(), seeds.len());
    }
    Ok(())
}

//! Several futures at once, in one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// As many as one call has under way.
const AT_ONCE: usize = 32;

/// Runs all of them, a bounded number at a time; their values in order, or the first error, after all that were begun have ended.
pub async fn all<T, E, F>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>> + Send,
{
    let mut waiting = futures.into_iter();
    let mut values = Vec::new();
    loop {
        let mut batch: Vec<Pin<Box<F>>> = waiting.by_ref().take(AT_ONCE).map(Box::pin).collect();
        let Some(alone) = (batch.len() == 1).then(|| batch.pop()).flatten() else {
            if batch.is_empty() {
                return Ok(values);
            }
            for value in ended(batch).await {
                values.push(value?);
            }
            continue;
        };
        values.push(alone.await?);
    }
}

async fn ended<T, F: Future<Output = T>>(mut batch: Vec<Pin<Box<F>>>) -> Vec<T> {
    let mut values: Vec<Option<T>> = batch.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut open = false;
        for (future, value) in batch.iter_mut().zip(&mut values) {
            if value.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(v) => *value = Some(v),
                    Poll::Pending => open = true,
                }
            }
        }
        match open {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
    values.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_order_and_errors_are_told() {
        let done = io::task::block_on(async {
            let good = all((0..100).map(|i| async move { Ok::<_, ()>(i) })).await;
            let bad = all((0..100).map(|i| async move { if i == 70 { Err(i) } else { Ok(i) } })).await;
            (good, bad)
        });
        let (good, bad) = done.unwrap();
        assert_eq!(good, Ok((0..100).collect::<Vec<_>>()));
        assert_eq!(bad, Err(70));
    }
}

//! Tasks beside each other.

use tokio::task::JoinSet;

/// The results of these tasks, by their numbers.
pub(crate) async fn in_order<T: 'static>(
    mut tasks: JoinSet<anyhow::Result<(usize, T)>>,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(one) = tasks.join_next().await {
        all.push(one??);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, one)| one).collect())
}

/// Does `one` for each number below `count`, in so many tasks: task k for k, k + `at_once` and so on. Returns
/// the results by number.
pub(crate) async fn in_parallel<T: Send + 'static, F: Future<Output = anyhow::Result<T>> + Send>(
    count: usize,
    at_once: usize,
    one: impl Fn(usize) -> F + Clone + Send + 'static,
) -> anyhow::Result<Vec<T>> {
    let mut tasks = JoinSet::new();
    for first in 0..at_once.min(count) {
        let one = one.clone();
        tasks.spawn(async move {
            let mut own = Vec::new();
            for number in (first..count).step_by(at_once) {
                own.push((number, one(number).await?));
            }
            anyhow::Ok(own)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(own) = tasks.join_next().await {
        all.extend(own??);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, one)| one).collect())
}

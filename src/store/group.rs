//! Group commit: concurrent questions answered by one statement or script, one commit, one flush to disk.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::StoreError;

/// More than this in one batch would make the first of them wait for the last.
pub(super) const LARGEST_BATCH: usize = 512;

/// Answers batches of questions, one batch at a time.
pub(super) trait Engine: Send + Sync + 'static {
    type Question: Send + 'static;
    type Answer: Send + 'static;

    /// Answers every question, in the order in which they were asked. Must end by itself: nobody cancels it.
    fn answer(&self, batch: &[Self::Question]) -> impl Future<Output = Answers<Self::Answer>> + Send;

    /// How many of those who wait, from the first on, make a batch: at least one.
    fn fitting<'a>(waiting: impl ExactSizeIterator<Item = &'a Self::Question>) -> usize {
        waiting.len().min(LARGEST_BATCH)
    }

    /// Whoever asked has left without hearing this.
    fn unheard(&self, question: Self::Question, answer: Self::Answer);
}

/// One for each question.
pub(super) type Answers<T> = Vec<Result<T, StoreError>>;

/// Gathers questions while a batch is under way; they are the next one.
///
/// No timer: a question that finds nothing under way is asked at once, and alone. The batches run in a task, so that a caller
/// that gives up does not tear a statement that is others' too; the task ends when there is nothing left to ask.
pub(super) struct Group<E: Engine> {
    shared: Arc<Shared<E>>,
}

struct Shared<E: Engine> {
    engine: E,
    queue: Mutex<Queue<E>>,
}

struct Queue<E: Engine> {
    waiting: Vec<Asked<E>>,
    under_way: bool,
}

struct Asked<E: Engine> {
    question: E::Question,
    reply: Option<oneshot::Sender<Result<E::Answer, StoreError>>>,
}

impl<E: Engine> Group<E> {
    pub(super) fn new(engine: E) -> Self {
        let queue = Mutex::new(Queue { waiting: Vec::new(), under_way: false });
        Self { shared: Arc::new(Shared { engine, queue }) }
    }

    /// What the engine answers. Dropped before its batch is formed, the question is not asked.
    pub(super) async fn ask(&self, question: E::Question) -> Result<E::Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Asked { question, reply: Some(reply) });
        // Gone without an answer: its runtime is shutting down, or there is a bug in the engine.
        answer.await.unwrap_or_else(|_| Err(StoreError::unavailable("the batch was dropped")))
    }

    /// Has something asked whose answer nobody waits for.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code, reason = "Redis tells nothing"))]
    pub(super) fn tell(&self, question: E::Question) {
        self.enqueue(Asked { question, reply: None });
    }

    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "the others ask their engines in batches only"))]
    pub(super) fn engine(&self) -> &E {
        &self.shared.engine
    }

    fn enqueue(&self, asked: Asked<E>) {
        let mut queue = self.shared.lock();
        queue.waiting.push(asked);
        if !queue.under_way {
            queue.under_way = true;
            drop(queue);
            tokio::spawn(UnderWay { shared: self.shared.clone(), ended: false }.run());
        }
    }
}

impl<E: Engine> Clone for Group<E> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<E: Engine> Shared<E> {
    fn lock(&self) -> MutexGuard<'_, Queue<E>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, without those who left; `None`, and nothing is under way any more, when nobody waits.
    fn next_batch(&self) -> Option<Vec<Asked<E>>> {
        let mut queue = self.lock();
        queue.waiting.retain(|asked| !asked.reply.as_ref().is_some_and(oneshot::Sender::is_closed));
        queue.under_way = !queue.waiting.is_empty();
        queue.under_way.then(|| {
            let length = E::fitting(queue.waiting.iter().map(|asked| &asked.question));
            queue.waiting.drain(..length).collect()
        })
    }
}

/// The task that runs the batches. Dropped half-way, those who wait are told, and the next question starts another.
struct UnderWay<E: Engine> {
    shared: Arc<Shared<E>>,
    ended: bool,
}

impl<E: Engine> UnderWay<E> {
    async fn run(mut self) {
        while let Some(batch) = self.shared.next_batch() {
            let (questions, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|asked| (asked.question, asked.reply)).unzip();
            let answers = self.shared.engine.answer(&questions).await;
            debug_assert_eq!(answers.len(), questions.len());
            for ((question, reply), answer) in questions.into_iter().zip(replies).zip(answers) {
                let Some(reply) = reply else { continue };
                if let Err(Ok(answer)) = reply.send(answer) {
                    self.shared.engine.unheard(question, answer);
                }
            }
            // Those who were answered may have something else to ask: in this batch, and not in the one after.
            tokio::task::yield_now().await;
        }
        self.ended = true;
    }
}

impl<E: Engine> Drop for UnderWay<E> {
    fn drop(&mut self) {
        // Ended in order, another task may be under way by now.
        if !self.ended {
            let mut queue = self.shared.lock();
            queue.under_way = false;
            queue.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    /// Answers with the number that was asked, once it is let; remembers the batches and what was not heard.
    struct Echo {
        go: Semaphore,
        batches: Mutex<Vec<Vec<u32>>>,
        unheard: Mutex<Vec<u32>>,
    }

    impl Engine for Arc<Echo> {
        type Question = u32;
        type Answer = u32;

        async fn answer(&self, batch: &[u32]) -> Answers<u32> {
            self.batches.lock().expect("no panic").push(batch.to_vec());
            self.go.acquire().await.expect("never closed").forget();
            assert!(!batch.contains(&13), "asked to fail");
            batch.iter().map(|number| Ok(*number)).collect()
        }

        fn unheard(&self, question: u32, answer: u32) {
            assert_eq!(question, answer);
            self.unheard.lock().expect("no panic").push(question);
        }
    }

    fn group() -> (Group<Arc<Echo>>, Arc<Echo>) {
        let echo = Echo { go: Semaphore::new(0), batches: Mutex::default(), unheard: Mutex::default() };
        let group = Group::new(Arc::new(echo));
        let echo = group.engine().clone();
        (group, echo)
    }

    /// Lets everything run that can.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_during_a_batch_is_the_next_one() {
        let (group, echo) = group();
        let asking: Vec<_> = (0..5).map(|n| (n, group.clone())).collect();
        let mut answers = tokio::task::JoinSet::new();
        for (n, group) in asking {
            answers.spawn(async move { (n, group.ask(n).await.expect("an answer")) });
            settle().await;
        }
        group.tell(5);
        echo.go.add_permits(2);
        for (asked, answer) in answers.join_all().await {
            assert_eq!(asked, answer);
        }
        assert_eq!(*echo.batches.lock().expect("no panic"), [vec![0], vec![1, 2, 3, 4, 5]]);
        assert!(echo.unheard.lock().expect("no panic").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_early_is_not_asked_for_and_who_leaves_late_is_told_of() {
        let (group, echo) = group();
        let late = tokio::spawn({
            let group = group.clone();
            async move { group.ask(1).await }
        });
        settle().await;
        let early = tokio::spawn({
            let group = group.clone();
            async move { group.ask(2).await }
        });
        settle().await;
        late.abort();
        early.abort();
        settle().await;
        echo.go.add_permits(1);
        settle().await;
        assert_eq!(*echo.batches.lock().expect("no panic"), [vec![1]]);
        assert_eq!(*echo.unheard.lock().expect("no panic"), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_batch_is_told_and_the_next_question_starts_anew() {
        let (group, echo) = group();
        echo.go.add_permits(2);
        assert!(group.ask(13).await.is_err());
        assert_eq!(group.ask(1).await.expect("an answer"), 1);
    }

    #[test]
    fn group_outlives_the_runtime_of_its_batches() {
        let (group, echo) = group();
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime().block_on(async {
            tokio::select! {
                biased;
                _ = group.ask(1) => unreachable!("nothing lets it go on"),
                () = async { for _ in 0..8 { tokio::task::yield_now().await } } => {}
            }
        });
        echo.go.add_permits(1);
        assert_eq!(runtime().block_on(group.ask(2)).expect("an answer"), 2);
    }
}

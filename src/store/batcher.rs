//! Group commit: one statement or script, one commit and one flush to disk answer concurrent questions.

use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::StoreError;
use crate::lock::lock;

/// The largest batch. In a larger one the first question would wait for the last.
pub(super) const LARGEST_BATCH: usize = 512;

/// Answers questions, one batch at a time.
pub(super) trait BatchHandler: Send + Sync + 'static {
    type Question: Send + 'static;
    type Answer: Send + 'static;

    /// Answers every question, in the order in which they were asked. Must end by itself: no caller cancels it.
    fn answer(&self, batch: &[Self::Question]) -> impl Future<Output = Answers<Self::Answer>> + Send;

    /// Returns how many of the waiting questions, from the first on, make a batch: at least one.
    fn fitting<'a>(waiting: impl ExactSizeIterator<Item = &'a Self::Question>) -> usize {
        waiting.len().min(LARGEST_BATCH)
    }

    /// Called with an answer whose caller has left.
    fn on_abandoned(&self, question: Self::Question, answer: Self::Answer);
}

/// One answer for each question.
pub(super) type Answers<T> = Vec<Result<T, StoreError>>;

/// Gathers questions while a batch is under way; they are the next batch.
///
/// There is no timer: a question that finds no batch under way is asked at once, and alone. The batches run in a task,
/// so that a caller that gives up does not interrupt a statement that other callers share. The task ends when no
/// question waits.
pub(super) struct Batcher<H: BatchHandler> {
    shared: Arc<Shared<H>>,
}

struct Shared<H: BatchHandler> {
    handler: H,
    waiting: Mutex<Waiting<H>>,
}

/// The questions that wait for the next batch.
struct Waiting<H: BatchHandler> {
    questions: Vec<Pending<H>>,
    /// Whether a batch is being answered.
    under_way: bool,
}

struct Pending<H: BatchHandler> {
    question: H::Question,
    reply: Option<oneshot::Sender<Result<H::Answer, StoreError>>>,
}

impl<H: BatchHandler> Batcher<H> {
    pub(super) fn new(handler: H) -> Self {
        let waiting = Mutex::new(Waiting { questions: Vec::new(), under_way: false });
        Self { shared: Arc::new(Shared { handler, waiting }) }
    }

    /// Asks, and returns the handler's answer. Dropped before its batch is formed, the question is not asked.
    pub(super) async fn ask(&self, question: H::Question) -> Result<H::Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.push(Pending { question, reply: Some(reply) });
        // Without an answer, its runtime is shutting down, or there is a bug in the handler.
        answer.await.unwrap_or_else(|_| Err(StoreError::unavailable("the batch was dropped")))
    }

    /// Asks without waiting for the answer.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code, reason = "Redis tells nothing"))]
    pub(super) fn tell(&self, question: H::Question) {
        self.push(Pending { question, reply: None });
    }

    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "the others ask their handlers in batches only"))]
    pub(super) fn handler(&self) -> &H {
        &self.shared.handler
    }

    fn push(&self, asked: Pending<H>) {
        let mut waiting = lock(&self.shared.waiting);
        waiting.questions.push(asked);
        if !waiting.under_way {
            waiting.under_way = true;
            drop(waiting);
            tokio::spawn(BatchTask { shared: self.shared.clone(), ended: false }.run());
        }
    }
}

impl<H: BatchHandler> Clone for Batcher<H> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<H: BatchHandler> Shared<H> {
    /// Forms the next batch, without the questions whose callers left. `None` if no question waits: no batch is under
    /// way then.
    fn next_batch(&self) -> Option<Vec<Pending<H>>> {
        let mut waiting = lock(&self.waiting);
        waiting.questions.retain(|asked| !asked.reply.as_ref().is_some_and(oneshot::Sender::is_closed));
        waiting.under_way = !waiting.questions.is_empty();
        waiting.under_way.then(|| {
            let length = H::fitting(waiting.questions.iter().map(|asked| &asked.question));
            waiting.questions.drain(..length).collect()
        })
    }
}

/// The task that runs the batches. If it is dropped half-way, its callers get an error, and the next question starts
/// another task.
struct BatchTask<H: BatchHandler> {
    shared: Arc<Shared<H>>,
    ended: bool,
}

impl<H: BatchHandler> BatchTask<H> {
    async fn run(mut self) {
        while let Some(batch) = self.shared.next_batch() {
            let (questions, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|asked| (asked.question, asked.reply)).unzip();
            let answers = self.shared.handler.answer(&questions).await;
            debug_assert_eq!(answers.len(), questions.len());
            for ((question, reply), answer) in questions.into_iter().zip(replies).zip(answers) {
                let Some(reply) = reply else { continue };
                if let Err(Ok(answer)) = reply.send(answer) {
                    self.shared.handler.on_abandoned(question, answer);
                }
            }
            // Callers that were answered may ask again: in the next batch, and not in the one after.
            tokio::task::yield_now().await;
        }
        self.ended = true;
    }
}

impl<H: BatchHandler> Drop for BatchTask<H> {
    fn drop(&mut self) {
        // After an orderly end, another task may be running by now.
        if !self.ended {
            let mut waiting = lock(&self.shared.waiting);
            waiting.under_way = false;
            waiting.questions.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    /// Answers with the number that was asked, once it is permitted; remembers the batches and the abandoned answers.
    struct Echo {
        go: Semaphore,
        batches: Mutex<Vec<Vec<u32>>>,
        abandoned: Mutex<Vec<u32>>,
    }

    impl BatchHandler for Arc<Echo> {
        type Question = u32;
        type Answer = u32;

        async fn answer(&self, batch: &[u32]) -> Answers<u32> {
            self.batches.lock().expect("no panic").push(batch.to_vec());
            self.go.acquire().await.expect("never closed").forget();
            assert!(!batch.contains(&13), "asked to fail");
            batch.iter().map(|number| Ok(*number)).collect()
        }

        fn on_abandoned(&self, question: u32, answer: u32) {
            assert_eq!(question, answer);
            self.abandoned.lock().expect("no panic").push(question);
        }
    }

    fn batcher() -> (Batcher<Arc<Echo>>, Arc<Echo>) {
        let echo = Echo { go: Semaphore::new(0), batches: Mutex::default(), abandoned: Mutex::default() };
        let batcher = Batcher::new(Arc::new(echo));
        let echo = batcher.handler().clone();
        (batcher, echo)
    }

    /// Lets every task run that can.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn questions_during_a_batch_are_the_next_one() {
        let (batcher, echo) = batcher();
        let asking: Vec<_> = (0..5).map(|n| (n, batcher.clone())).collect();
        let mut answers = tokio::task::JoinSet::new();
        for (n, batcher) in asking {
            answers.spawn(async move { (n, batcher.ask(n).await.expect("an answer")) });
            settle().await;
        }
        batcher.tell(5);
        echo.go.add_permits(2);
        for (asked, answer) in answers.join_all().await {
            assert_eq!(asked, answer);
        }
        assert_eq!(*echo.batches.lock().expect("no panic"), [vec![0], vec![1, 2, 3, 4, 5]]);
        assert!(echo.abandoned.lock().expect("no panic").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn caller_that_leaves_early_is_not_asked_for_and_one_that_leaves_late_is_abandoned() {
        let (batcher, echo) = batcher();
        let late = tokio::spawn({
            let batcher = batcher.clone();
            async move { batcher.ask(1).await }
        });
        settle().await;
        let early = tokio::spawn({
            let batcher = batcher.clone();
            async move { batcher.ask(2).await }
        });
        settle().await;
        late.abort();
        early.abort();
        settle().await;
        echo.go.add_permits(1);
        settle().await;
        assert_eq!(*echo.batches.lock().expect("no panic"), [vec![1]]);
        assert_eq!(*echo.abandoned.lock().expect("no panic"), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_batch_is_an_error_and_the_next_question_starts_anew() {
        let (batcher, echo) = batcher();
        echo.go.add_permits(2);
        assert!(batcher.ask(13).await.is_err());
        assert_eq!(batcher.ask(1).await.expect("an answer"), 1);
    }

    #[test]
    fn batcher_outlives_the_runtime_of_its_batches() {
        let (batcher, echo) = batcher();
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime().block_on(async {
            tokio::select! {
                biased;
                _ = batcher.ask(1) => unreachable!("nothing lets it go on"),
                () = async { for _ in 0..8 { tokio::task::yield_now().await } } => {}
            }
        });
        echo.go.add_permits(1);
        assert_eq!(runtime().block_on(batcher.ask(2)).expect("an answer"), 2);
    }
}

//! The condition of a filter in SQL, for the stores that keep events in a table.

use super::queue::{EventState, Filter};
use super::record::State;

/// Returns the condition for events in one of `states` that match `filter`. Its values are parameters: the key, the
/// type, the endpoint, and the first and the last time, each as `parameters` writes it.
pub(super) fn condition(filter: &Filter, states: &[EventState], parameters: [&str; 5]) -> String {
    let states: Vec<_> = filter.states(states).into_iter().map(|state| State::from(state).stored()).collect();
    // As text and not as a parameter: some indexes contain some states only.
    let mut condition = match *states {
        [] => "false".to_owned(),
        [state] => format!("state = '{state}'"),
        _ => format!("state IN ('{}')", states.join("', '")),
    };
    let comparisons = [
        (filter.key.is_some(), "key ="),
        (filter.event_type.is_some(), "event_type ="),
        (filter.endpoint.is_some(), "endpoint ="),
        (filter.since.is_some(), "received_at >="),
        (filter.before.is_some(), "received_at <"),
    ];
    for ((is_set, comparison), parameter) in comparisons.into_iter().zip(parameters) {
        if is_set {
            condition.extend([" AND ", comparison, " ", parameter]);
        }
    }
    condition
}

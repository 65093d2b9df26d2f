//! The gateway over real sockets, in front of objects in memory.

#[cfg(test)]
mod gateway {
    mod chunks;
    mod double;
    mod drain;
    mod forms;
    mod guard;
    mod listing;
    mod objects;
    mod parse;
    mod passing;
    mod secrets;
    mod sign;
    mod smuggling;
    mod support;
    mod tls;
    mod uploads;
}

//! The words of the API's strings, as schemas.

use crate::range::RANGES;
use crate::status::TargetStatus;
use crate::timeline::State;
use model::{
    AlertEvent, AlertState, BreakerState, Cadence, Class, DeadReason, DeliveryState, EventKind, FailureCategory, Phase,
    Place, Resolution, Scope, Status, TargetSource,
};
use utoipa::openapi::schema::{Object, ObjectBuilder, Schema, SchemaType, Type};

fn schema<'a>(words: impl IntoIterator<Item = &'a str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}

/// Allows null in addition.
fn or_null(mut schema: Object) -> Object {
    schema.schema_type = SchemaType::from_iter([Type::String, Type::Null]);
    schema.enum_values.get_or_insert_default().push(serde_json::Value::Null);
    schema
}

pub(crate) fn target_status() -> Schema {
    schema(TargetStatus::ALL.map(TargetStatus::as_str)).into()
}

pub(crate) fn status() -> Schema {
    schema(Status::ALL.map(Status::as_str)).into()
}

pub(crate) fn alert_state() -> Schema {
    schema(AlertState::ALL.map(AlertState::as_str)).into()
}

pub(crate) fn alert_filter() -> Schema {
    schema(["open"].into_iter().chain(AlertState::ALL.map(AlertState::as_str))).into()
}

pub(crate) fn alert_event() -> Schema {
    schema(AlertEvent::ALL.map(AlertEvent::as_str)).into()
}

pub(crate) fn delivery_state() -> Schema {
    schema(DeliveryState::ALL.map(DeliveryState::as_str)).into()
}

pub(crate) fn alert_class() -> Schema {
    schema(Class::ALL.map(Class::as_str)).into()
}

pub(crate) fn resolution_or_null() -> Schema {
    or_null(schema(Resolution::ALL.map(Resolution::as_str))).into()
}

pub(crate) fn place() -> Schema {
    schema(Place::ALL.map(Place::as_str)).into()
}

pub(crate) fn cadence() -> Schema {
    schema(Cadence::ALL.map(Cadence::as_str)).into()
}

pub(crate) fn breaker() -> Schema {
    schema(BreakerState::ALL.map(BreakerState::as_str)).into()
}

pub(crate) fn scope() -> Schema {
    schema(Scope::ALL.map(Scope::as_str)).into()
}

pub(crate) fn target_source() -> Schema {
    schema(TargetSource::ALL.map(TargetSource::as_str)).into()
}

pub(crate) fn phase() -> Schema {
    schema(Phase::ALL.map(Phase::as_str)).into()
}

pub(crate) fn setting_source() -> Schema {
    schema(["default", "file", "api", "assignment", "setting", "environment"]).into()
}

pub(crate) fn category() -> Schema {
    schema(FailureCategory::ALL.map(FailureCategory::as_str)).into()
}

pub(crate) fn category_or_null() -> Schema {
    or_null(schema(FailureCategory::ALL.map(FailureCategory::as_str))).into()
}

pub(crate) fn dead_reason() -> Schema {
    schema(DeadReason::ALL.map(DeadReason::as_str)).into()
}

pub(crate) fn past_state() -> Schema {
    schema(State::ALL.map(State::as_str)).into()
}

/// The names of the events that are stored.
pub(crate) fn stored_event() -> Schema {
    schema(EventKind::NAMES.iter().copied().filter(|name| *name != "poll:complete")).into()
}

pub(crate) fn range() -> Schema {
    schema(RANGES.map(|(word, _)| word)).into()
}

pub(crate) fn format() -> Schema {
    schema(["json", "csv"]).into()
}

pub(crate) fn cadence_or_null() -> Schema {
    or_null(schema(Cadence::ALL.map(Cadence::as_str))).into()
}

/// A string, number or boolean.
pub(crate) fn scalar() -> Schema {
    let types = SchemaType::from_iter([Type::String, Type::Number, Type::Boolean]);
    ObjectBuilder::new().schema_type(types).build().into()
}

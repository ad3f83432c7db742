use super::*;
use proptest::prelude::*;

fn id(n: u8) -> TargetId {
    TargetId::new(&format!("t{n}")).unwrap()
}

/// An entry of the model: due, score, last polled, id.
type Held = (i64, u8, i64, TargetId);

/// A naive model of the queue: a sorted list.
#[derive(Default)]
struct Model(Vec<Held>);

impl Model {
    fn push(&mut self, held: Held) {
        self.remove(&held.3.clone());
        self.0.push(held);
        self.0.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)).then(a.3.cmp(&b.3)));
    }

    fn remove(&mut self, target: &TargetId) -> bool {
        let before = self.0.len();
        self.0.retain(|held| held.3 != *target);
        self.0.len() < before
    }

    fn due(&self, now: i64, limit: usize) -> Vec<Held> {
        self.0.iter().filter(|held| held.0 <= now).take(limit).cloned().collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(u8, i64, u8, i64),
    Pop,
    Remove(u8),
    Forget(u8),
    PopDue(i64, usize),
    PeekDue(i64, usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u8..40, 0i64..20, 0u8..3, 0i64..3).prop_map(|(id, due, score, polled)| Op::Push(id, due, score, polled)),
        1 => Just(Op::Pop),
        1 => (0u8..40).prop_map(Op::Remove),
        1 => (0u8..40).prop_map(Op::Forget),
        1 => (0i64..20, 0usize..6).prop_map(|(now, limit)| Op::PopDue(now, limit)),
        1 => (0i64..20, 0usize..50).prop_map(|(now, limit)| Op::PeekDue(now, limit)),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_list(ops in proptest::collection::vec(op(), 0..200)) {
        let (mut queue, mut model) = (Queue::new(), Model::default());
        let held = |queue: &Queue, entry: Entry| -> Held {
            (entry.due.as_nanos(), (entry.score * 4.0) as u8, entry.last_polled.as_nanos(), queue.id(entry.slot).clone())
        };
        for op in ops {
            match op {
                Op::Push(n, due, score, polled) => {
                    let slot = queue.register(&id(n));
                    let (due, last_polled) = (Moment::from_nanos(due), Moment::from_nanos(polled));
                    queue.push(Entry { slot, due, score: f32::from(score) / 4.0, last_polled });
                    model.push((due.as_nanos(), score, polled, id(n)));
                }
                Op::Pop => {
                    let expected = (!model.0.is_empty()).then(|| model.0.remove(0));
                    let found = queue.pop();
                    prop_assert_eq!(found.map(|entry| held(&queue, entry)), expected);
                }
                Op::Remove(n) => {
                    let removed = queue.slot(&id(n)).is_some_and(|slot| queue.remove(slot));
                    prop_assert_eq!(removed, model.remove(&id(n)));
                }
                Op::Forget(n) => {
                    if let Some(slot) = queue.slot(&id(n)) {
                        queue.forget(slot);
                    }
                    model.remove(&id(n));
                    prop_assert_eq!(queue.slot(&id(n)), None);
                }
                Op::PopDue(now, limit) => {
                    let expected = model.due(now, limit);
                    model.0.drain(..expected.len());
                    let found = queue.pop_due(Moment::from_nanos(now), limit);
                    let found: Vec<Held> = found.into_iter().map(|entry| held(&queue, entry)).collect();
                    prop_assert_eq!(found, expected);
                }
                Op::PeekDue(now, limit) => {
                    let seen = queue.peek_due(Moment::from_nanos(now), limit);
                    let seen: Vec<Held> = seen.into_iter().map(|entry| held(&queue, entry)).collect();
                    prop_assert_eq!(seen, model.due(now, limit));
                    prop_assert_eq!(queue.count_due(Moment::from_nanos(now)), model.due(now, usize::MAX).len());
                }
            }
            prop_assert_eq!(queue.len(), model.0.len());
            prop_assert_eq!(queue.peek().map(|entry| held(&queue, entry)), model.0.first().cloned());
            prop_assert_eq!(queue.next_due().map(Moment::as_nanos), model.0.first().map(|held| held.0));
            for expected in &model.0 {
                let slot = queue.slot(&expected.3).unwrap();
                prop_assert_eq!(held(&queue, queue.get(slot).unwrap()), expected.clone());
            }
        }
    }
}

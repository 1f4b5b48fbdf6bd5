//! A seeded life of the engine: arrivals, lengths, cancellations, preemptions, little memory, cached prefixes and drafts are
//! drawn; every sequence must give what it gives alone, and the books must balance after every step.

mod alone;
mod books;
mod drawn;
mod faults;
mod life;
mod states;

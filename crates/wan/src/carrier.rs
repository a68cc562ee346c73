//! The thread that carries packets: reads what machines send, waits until it is due, and writes it to its destination.

use crate::engine::{Engine, Parcel};
use crate::fault::Fault;
use crate::network::Network;
use crate::packet::{Packet, READ_BYTES_MAX};
use crate::{Nanos, realtime};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{read, write};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most packets that are read from one machine, or released, before the others get their turn.
const TURN_PACKETS: usize = 64;
/// Most commands that may wait for the thread.
const COMMANDS_MAX: usize = 16;
const EVENTS_MAX: usize = 64;
/// Time limit for an answer; after it the thread counts as stuck or dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

const TIMER: u64 = u64::MAX;
const COMMAND: u64 = u64::MAX - 1;

/// Work for the thread that owns the engine, at a moment of its clock.
type Command = Box<dyn FnOnce(&mut Engine<Packet>, Nanos) + Send>;

/// A handle on the thread.
pub struct Carrier {
    commands: Option<SyncSender<Command>>,
    bell: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    /// True if the thread got real-time scheduling.
    pub realtime: bool,
}

impl Carrier {
    /// Starts the thread. `devices` and the network's machines are in the same order.
    pub fn start(engine: Engine<Packet>, devices: Vec<OwnedFd>, network: &Network) -> Result<Self, Fault> {
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(failed("an event descriptor"))?;
        let bell = Arc::new(bell);
        let mut work = Work::new(engine, devices, network, inbox, Arc::clone(&bell))?;
        let (started, realtime) = sync_channel(1);
        let thread = thread::Builder::new().name("carrier".into()).spawn(move || {
            // The receiver waits for exactly this message.
            let _ = started.send(realtime::claim());
            work.run();
        });
        let thread = thread.map_err(|error| Fault::failed(format!("the carrier cannot be started: {error}")))?;
        let realtime = realtime.recv().map_err(|_| Fault::failed("the carrier died"))?;
        Ok(Self { commands: Some(commands), bell, thread: Some(thread), realtime })
    }

    /// Runs `work` on the thread that owns the engine, and returns its result.
    pub fn with_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine<Packet>, Nanos) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let (answer, result) = sync_channel(1);
        let command: Command = Box::new(move |engine, now| {
            // If the caller no longer waits, nobody needs the answer.
            let _ = answer.send(work(engine, now));
        });
        let dead = || Fault::failed("the carrier does not answer");
        self.commands.as_ref().ok_or_else(dead)?.send(command).map_err(|_| dead())?;
        self.bell.write(1).map_err(failed("the bell"))?;
        result.recv_timeout(ANSWER_WITHIN).map_err(|_| dead())
    }

    /// Ends the thread; packets in transit are lost.
    pub fn stop(mut self) {
        drop(self.commands.take());
        // The counter overflows only after 2^64 writes.
        let _ = self.bell.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    engine: Engine<Packet>,
    devices: Vec<OwnedFd>,
    machines: HashMap<Ipv4Addr, usize>,
    /// Ordered pairs of machines whose first cannot open connections to the second.
    closed: HashSet<(usize, usize)>,
    inbox: Receiver<Command>,
    bell: Arc<EventFd>,
    poll: Epoll,
    timer: TimerFd,
    /// The time that the timer is set to; `None` once it has expired.
    alarm: Option<Nanos>,
    /// The start of the engine's clock.
    began: Instant,
    buffer: Box<[u8]>,
}

impl Work {
    fn new(
        engine: Engine<Packet>,
        devices: Vec<OwnedFd>,
        network: &Network,
        inbox: Receiver<Command>,
        bell: Arc<EventFd>,
    ) -> Result<Self, Fault> {
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("epoll"))?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)
            .map_err(failed("a timer"))?;
        for (index, device) in devices.iter().enumerate() {
            poll.add(device, EpollEvent::new(EpollFlags::EPOLLIN, index as u64)).map_err(failed("epoll"))?;
        }
        // Edge-triggered: each expiry wakes the thread once and needs no read.
        let on_expiry = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER);
        poll.add(&timer, on_expiry).map_err(failed("epoll"))?;
        poll.add(bell.as_ref(), EpollEvent::new(EpollFlags::EPOLLIN, COMMAND)).map_err(failed("epoll"))?;
        let buffer = vec![0; READ_BYTES_MAX].into_boxed_slice();
        let machines = network.machines.iter().enumerate().map(|(index, machine)| (machine.address, index)).collect();
        let (closed, began) = (network.closed_pairs(), Instant::now());
        Ok(Self { engine, devices, machines, closed, inbox, bell, poll, timer, alarm: None, began, buffer })
    }

    /// Runs until the other end of the inbox is dropped.
    fn run(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        loop {
            let more_is_due = self.deliver();
            let timeout = if more_is_due { EpollTimeout::ZERO } else { self.set_alarm() };
            let count = match self.poll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                // Only a programming error makes this fail. The next caller reports that the carrier is gone.
                Err(_) => return,
            };
            for event in &events[..count] {
                match event.data() {
                    TIMER => self.alarm = None,
                    COMMAND => {
                        if !self.obey() {
                            return;
                        }
                    }
                    machine => self.take_from(machine as usize),
                }
            }
        }
    }

    fn now(&self) -> Nanos {
        // Overflows after 584 years.
        self.began.elapsed().as_nanos() as Nanos
    }

    /// Writes packets that are due; returns true if more may be due.
    fn deliver(&mut self) -> bool {
        for _ in 0..TURN_PACKETS {
            let now = self.now();
            let Some(departure) = self.engine.release(now) else { return false };
            // A device refuses a packet if its machine has no memory for it, as a network card would: the packet is
            // lost.
            if write(&self.devices[departure.dst], departure.parcel.bytes()).is_err() {
                self.engine.count_refused(departure.src, departure.dst, departure.parcel.packets());
            }
        }
        true
    }

    /// Sets the timer to the next due time.
    fn set_alarm(&mut self) -> EpollTimeout {
        let due = self.engine.next_due();
        if due == self.alarm {
            return EpollTimeout::NONE;
        }
        let Some(due_ns) = due else {
            // An unneeded alarm does no harm.
            return EpollTimeout::NONE;
        };
        let left = Duration::from_nanos(due_ns.saturating_sub(self.now()).max(1));
        self.alarm = due;
        match self.timer.set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty()) {
            Ok(()) => EpollTimeout::NONE,
            // Never seen; a millisecond of lateness is better than sleeping for ever.
            Err(_) => EpollTimeout::from(1_u8),
        }
    }

    fn take_from(&mut self, machine: usize) {
        for _ in 0..TURN_PACKETS {
            let Ok(length) = read(&self.devices[machine], &mut self.buffer) else { return };
            let now = self.now();
            let Some(packet) = Packet::parse(&self.buffer[..length]) else { continue };
            let Some(&destination) = self.machines.get(&packet.destination()) else { continue };
            let is_closed = !self.closed.is_empty() && self.closed.contains(&(machine, destination));
            if !(is_closed && packet.opens_connection()) {
                self.engine.accept(now, machine, destination, packet);
            }
        }
    }

    /// Runs the waiting commands; returns false if there can be no more.
    fn obey(&mut self) -> bool {
        // Level-triggered, so the counter must be read.
        let _ = self.bell.read();
        loop {
            match self.inbox.try_recv() {
                Ok(command) => {
                    let now = self.now();
                    command(&mut self.engine, now);
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Fault {
    move |error| Fault::failed(format!("{what}: {}", error.desc()))
}

"""The service's scheduler: which job starts next, and why another one waits. No I/O, no clock, no threads.

- `jobs`: a job as the scheduler sees it, what it uses, and how it is bound to a source and a route
- `events`: what happens to the scheduler, and what it decides
- `state`: the scheduler. `handle(now_s, event)` returns decisions
- `limits`, `shares`, `queues`: how much may run, whose turn it is, and which queues wait for which resource
- `ownership`, `retry`, `bans`: who may write where, what a failure costs, what operators have closed
- `schedules`: jobs that are submitted by a timetable
- `why`, `eta`: why a job waits, and when it will finish
- `simulate`: the same scheduler with a virtual clock
"""

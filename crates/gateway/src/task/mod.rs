//! Work that needs no gateways and no journal: `ls`, `du`, `rm`, `cat`, `put`, `check`, `explain`, `doctor`, `cancel`.

"""The market for transfers as a service: prices, auctions, budgets, invoices and energy. No I/O, no clock.

- `money`: exact amounts, micro-dollars and their rounding
- `margins`: the bounds of the service's price; `energy`: the energy of both ways to transfer
- `tariff`: price lists, and the price by utilisation
- `auction`: idle bandwidth of one link and hour; `budget`: limits with reservations
- `charge`, `invoice`: from ledger lines and auctions to a month's invoice in cents
- `demand`, `simulate`: tenants who choose between the service and machines of their own
"""

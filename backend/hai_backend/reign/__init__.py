"""One reign: everything that exists only while this server leads.

A server with SQLite has one reign, from start to end; of several servers on PostgreSQL each may have some.

    rooms      which parts there are, and how they are joined
    following  what follows when a task has changed
    answering  who is answered: clients, agents, browsers
    life       how it begins and ends
"""

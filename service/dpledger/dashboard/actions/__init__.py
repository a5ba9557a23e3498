"""Forms by which admins change something: each is reviewed, then confirmed, and done once.

A form is sent twice. The first time nothing is done: the page that answers says what would happen, as the
ledger would decide it now, and carries a key of its own. The second time the ledger does it under that key,
by the calls that the API makes: a double click, a reload or a second tab gets the first answer.
"""

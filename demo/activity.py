"""The website: users with profiles, and the pages they look at. Remembers what it sent, to be checked at the end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from penstock import Producer

VIEWS, PROFILES = "page-views", "user-profiles"
USERS = 500
PAGES = ["/", "/products", "/products/42", "/cart", "/checkout", "/help"]
COUNTRIES = ["AT", "BR", "IN", "JP", "KE", "US"]

Minute = int  # in ms, where it begins


class Website:
    """Produces page views at a steady rate until it is stopped."""

    def __init__(self, bootstrap: str, views_per_second: int) -> None:
        self._bootstrap = bootstrap
        self._rate = views_per_second
        self._chance = random.Random(7)
        self._countries = {f"user-{number}": self._chance.choice(COUNTRIES) for number in range(USERS)}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="website", daemon=True)
        self.acknowledged: Counter[tuple[Minute, str]] = Counter()  # views by minute and country
        self.failure: Exception | None = None

    def start(self) -> None:
        """Write the profiles, then begin with the views."""
        with Producer(self._bootstrap, value_serializer="json") as producer:
            for user, country in self._countries.items():
                producer.send(PROFILES, {"country": country}, key=user)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until all that was sent is acknowledged."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with Producer(self._bootstrap, value_serializer="json", compression="zstd", linger_ms=20) as producer:
                while not self._stopping.wait(0.1):
                    self._burst(producer, self._rate // 10)
        except Exception as error:
            self.failure = error
            self._stopping.set()

    def _burst(self, producer: Producer, count: int) -> None:
        at = int(time.time() * 1000)
        deliveries = []
        for _ in range(count):
            user, page = f"user-{self._chance.randrange(USERS)}", self._chance.choice(PAGES)
            deliveries.append((user, producer.send(VIEWS, {"page": page}, key=user, timestamp=at)))
        for user, delivery in deliveries:
            delivery.result(30)
            self.acknowledged[at // 60_000 * 60_000, self._countries[user]] += 1

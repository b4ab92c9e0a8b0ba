"""How often something may be done: a bucket of tokens that fills by itself."""

from __future__ import annotations


class TokenBucket:
    """Lets `rate_per_s` through, and after a rest as many at once as come in within `burst_s`.

    That is `least_burst_count` at least: who does a few things in a row is no flood.
    """

    __slots__ = ("_burst_count", "_rate_per_s", "_seen_s", "_token_count")

    def __init__(
        self, rate_per_s: float, *, burst_s: float = 1.0, least_burst_count: float = 1.0
    ) -> None:
        self._rate_per_s = rate_per_s
        self._burst_count = max(least_burst_count, rate_per_s * burst_s)
        self._token_count = self._burst_count
        self._seen_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Whether one more may pass now; it counts only where it may."""
        self._fill(now_s)
        if self._token_count < 1.0:
            return False
        self._token_count -= 1.0
        return True

    def wait_s(self, now_s: float) -> float:
        """How long until one more may pass."""
        self._fill(now_s)
        return max(0.0, (1.0 - self._token_count) / self._rate_per_s)

    def is_full(self, now_s: float) -> bool:
        """Whether it stands as a new one would, so that nothing is lost by forgetting it."""
        self._fill(now_s)
        return self._token_count >= self._burst_count

    def _fill(self, now_s: float) -> None:
        if self._seen_s is not None:
            gained_count = max(0.0, now_s - self._seen_s) * self._rate_per_s
            self._token_count = min(self._burst_count, self._token_count + gained_count)
        self._seen_s = now_s


class UserRates:
    """A bucket for each user, forgotten once it is full again."""

    _FORGET_AT_COUNT = 256

    def __init__(
        self, rate_per_s: float, *, burst_s: float = 1.0, least_burst_count: float = 1.0
    ) -> None:
        self._rate_per_s = rate_per_s
        self._burst_s = burst_s
        self._least_burst_count = least_burst_count
        self._buckets: dict[int, TokenBucket] = {}

    def take(self, uid: int, now_s: float) -> bool:
        """Whether this user may do one more now."""
        return self.bucket(uid, now_s).take(now_s)

    def bucket(self, uid: int, now_s: float) -> TokenBucket:
        """The bucket of this user."""
        bucket = self._buckets.get(uid)
        if bucket is None:
            self._forget_rested(now_s)
            bucket = self._buckets[uid] = TokenBucket(
                self._rate_per_s, burst_s=self._burst_s, least_burst_count=self._least_burst_count
            )
        return bucket

    def _forget_rested(self, now_s: float) -> None:
        if len(self._buckets) >= self._FORGET_AT_COUNT:
            rested = [uid for uid, bucket in self._buckets.items() if bucket.is_full(now_s)]
            for uid in rested:
                del self._buckets[uid]

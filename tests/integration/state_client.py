"""What an exporter serves at api/state.json, for tests that have its `url` and a `validator` of its schema."""
import json
import time
import urllib.request

from command_runner import PATIENCE


class StateClient:
    def fetch(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def state(self, query="", good=lambda state: True):
        """As soon as it is good: events are read a moment after they happened."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state = json.loads(self.fetch("api/state.json" + query), parse_constant=self.fail)
            self.validator.validate(state)
            if good(state):
                return state
            self.assertLess(time.monotonic(), deadline, json.dumps(state, indent=1))
            time.sleep(0.05)

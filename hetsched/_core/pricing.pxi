# Doors about prices: what is asked and what is there, out; what that makes capacity worth, in. No facts: prices are computed again from
# what was counted (policy/price.py) whenever that is wanted, and placements are written down anyhow.

cdef class PricingDoors(RunDoors):

    @property
    def asked(self):
        return self.t.asked

    @property
    def left(self):
        return self.t.left

    def set_repair(self, int64_t repair_ns):
        if repair_ns < 0:
            raise ValueError(f"repair_ns {repair_ns} is negative")
        self.t.repair_ns = repair_ns

    def set_consolidate(self, int moves):
        if not MOVE_NEVER_ <= moves <= MOVE_EQUAL_:
            raise ValueError(f"moves {moves} is none of MOVE_*")
        self.t.consolidate = <uint8_t> moves

    def set_preemption_delay(self, int64_t delay_ns, uint32_t queue=0xFFFFFFFF):
        if delay_ns < 0:
            raise ValueError(f"delay_ns {delay_ns} is negative")
        if queue == NONE_:
            self.t.delay_ns = delay_ns
        else:
            self._queue(queue)
            self.t.queues[queue].delay_ns = delay_ns
        self.t.changes += 1

    def set_strand_limit(self, int64_t milli):
        if not 0 <= milli <= 1000000:
            raise ValueError(f"a strand limit of {milli} is not 0..1000000 milli a core")
        self.t.strand_limit = milli
        self.t.all_dirty = True
        self.t.frees += 1
        self.t.changes += 1
        self._checked()

    def set_patience(self, int64_t patience_ns):
        if patience_ns < 0:
            raise ValueError(f"patience_ns {patience_ns} is negative")
        self.t.patience_ns = patience_ns
        self.t.frees += 1
        self.t.changes += 1
        self._checked()

    def waits_until(self, uint32_t task):
        self._task(task)
        if not is_waiting(&self.t.tasks[task]) or self.t.tasks[task].gang != NONE_ or self.t.scarce == 0:
            return None
        cdef uint32_t lane
        lane_of(&self.t, &self.t.tasks[task], &lane)
        refresh(&self.t)
        return waits_until(&self.t, &self.t.lanes[lane]) or None

    def know(self, uint32_t shape, uint32_t times):
        self._shape(shape)
        count_arrivals(&self.t, shape, times)
        self._checked()

    def demand(self):
        cdef ShapeRecord* shape
        cdef uint32_t slot
        cdef int at
        rows = []
        for slot in range(self.t.shapes_used):
            shape = &self.t.shapes[slot]
            if shape.popularity > 0 and shape.ask_count > 0:
                asks = tuple([ask_tuple(&shape.asks[at]) for at in range(shape.ask_count)])
                rows.append((shape.popularity, shape.cpu_milli, shape.memory_bytes, asks))
        return rows

    def supply(self):
        cdef int64_t milli[16][65]             # the last column: of no model
        cdef int kind, model
        memset(milli, 0, sizeof(milli))
        with nogil:
            count_supply(&self.t, &milli[0][0])
        return {(kind, model if model < 64 else -1): milli[kind][model] for kind in range(16) for model in range(65) if milli[kind][model] > 0}

    def set_prices(self, int kind, values, premiums, int64_t cpu_rate, int64_t memory_rate, apart=(), wide=()):
        cdef PriceRecord* price
        cdef int16_t worth[1001]
        cdef int at
        if not 0 <= kind < 16:
            raise ValueError(f"kind {kind} is not 0..15")
        premiums = dict(premiums)
        read_values(tuple(values), worth)
        apart, wide = list(apart), list(wide)
        if len(apart) > 65 or any([not 0 <= amount <= MOST_APART for amount in apart]) or apart != sorted(apart, reverse=True):
            raise ValueError(f"apart is at most 65 numbers 0..{MOST_APART} that never rise")
        if len(wide) > 65 or any([not 0 <= amount <= MOST_APART for amount in wide]) or wide != sorted(wide):
            raise ValueError(f"wide is at most 65 numbers 0..{MOST_APART} that never fall")
        if any(not 0 <= model < 64 or not 0 <= premium <= 1000 for model, premium in premiums.items()):
            raise ValueError("a premium is 0..1000 thousandths, of a model 0..63")
        if not 0 <= cpu_rate <= MOST_AMOUNT or not 0 <= memory_rate <= MOST_AMOUNT:
            raise ValueError(f"a rate is 0..{MOST_AMOUNT}")
        price = &self.t.prices[kind]
        memcpy(price.value, worth, sizeof(worth))
        memset(price.premium, 0, sizeof(price.premium))
        for model, premium in premiums.items():
            price.premium[<int> model] = premium
        price.cpu_rate, price.memory_rate = cpu_rate, memory_rate
        memset(price.apart, 0, sizeof(price.apart))
        for at in range(len(apart)):
            price.apart[at] = apart[at]
        for at in range(65):  # beyond its end as at its end
            price.wide[at] = wide[min(at, <int> len(wide) - 1)] if wide else 0
        self.t.has_apart = any([self.t.prices[at].apart[0] > 0 or self.t.prices[at].wide[64] > 0 for at in range(16)])
        if self.t.policy == POLICY_PRICE_:
            self.t.all_dirty = True
            self.t.columns_moved = True
            self.t.changes += 1
        self._checked()


cdef void count_supply(Tables* t, int64_t* milli) noexcept nogil:
    """Of usable devices of open nodes, by kind and model."""
    cdef NodeRecord* node
    cdef DeviceRecord* device
    cdef uint32_t slot, at
    for slot in range(t.nodes_used):
        node = &t.nodes[slot]
        if not node.is_present or not node.is_open:
            continue
        for at in range(node.device_first, node.device_first + node.device_count):
            device = &t.devices[at]
            if device.usable:
                milli[device.kind * 65 + (device.model if device.model >= 0 else 64)] += 1000


cdef int read_values(tuple values, int16_t* worth) except -1:
    cdef int64_t value, before = 0
    cdef int at
    if len(values) == 1001 and values[0] == 0:
        for at in range(1001):
            value = values[at]
            if not before <= value <= 1000:
                break
            worth[at] = <int16_t> value
            before = value
        else:
            return 0
    raise ValueError("values are 1001 numbers from 0 to at most 1000 that never fall")


cdef tuple ask_tuple(AskRecord* ask):
    """kind, whole, parts, part_milli, allowed models as a mask (0: any)."""
    return ask.kind, ask.whole, ask.parts, ask.part_milli, ask.models

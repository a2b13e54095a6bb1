/* The event loop of drbench/model/simulate.py, compiled: the same events in the same order, sums in
   the same order, so that results are equal to the last bit where the compiler keeps IEEE
   arithmetic (-ffp-contract=off). The Python loop is the oracle; what a name means is said there.

   The mirror, function by function: Scheduler of drbench/plan/schedule.py (look_ahead, advance,
   ready, take, next_compute, finished), Rank of rank.py (predict, slowed, beside, on_core,
   between), links/first_come.py (fifo_*), links/fair.py (fair_*) and levels.py (find_levels), Lanes
   and Engines of links/transfer.py, Workers of kernel.py (deal), simulate_signals.py,
   simulate_groups.py (group_*), and simulate.py itself. Left to Python: timelines, folded groups.

   A step is an integer, all ranks' one after another; a transfer is named by its step, and so is a
   rank's compute. What a step is and costs stands in a row of tables that many steps share. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ABI 5
/* Of links/levels.py. */
#define FULL (1 + 1e-9)
#define SAME 1e-13
#define PATIENCE 20

/* What a step does when it is started. */
enum { ALIAS, OWN, MOVE, FENCE, COMPUTE, SIDE_ON_CORE, SIDE, OFFER, AWAIT, PUSH, TAKE, GROUP };

/* What else is to be known of it. */
enum {
    COMPUTES = 1,  /* of the compute engine */
    MAKES = 2,     /* a product into memory of its own */
    MOVES = 4,     /* its value is not at hand from the start */
    TOUCHES = 8,   /* a matrix that the program writes */
    AT_HAND = 16,  /* takes no time */
    HELD = 32,     /* unless a Fence is before it */
    ANYTIME = 64,  /* may begin before all others */
    ADDS = 128,    /* an Accumulate */
    TERM = 256,    /* a sum beside the products */
    OWN_LINK = 512, /* moves on the rank's own throttled link */
    SENDS = 1024,  /* that out of it */
    SHIFTS = 2048, /* of group steps: to a neighbour and from the other one */
    ALONE = 4096,  /* nothing moves */
    THROTTLED = 8192, /* a timer of the rank says when it is over */
};

enum {
    DONE_SEEN, DONE, COMPUTED, OWN_DONE, SUM, GONE, LEFT, DUE, SETTLE, SEE, GO_ON,
    COME, PART, ARRIVED, ENTER
};

enum { OK, STUCK, BEYOND, NO_MEMORY };

typedef struct {
    /* Steps: of rank r those from first[r] to first[r + 1]; inputs count from the rank's first. */
    int32_t ranks, rows, resources, lanes, values, phases, fair, adds_on_core, copy_engines, waits;
    int32_t seats, groups, ways; /* a seat is a rank in a group, of all ranks for its Fences too */
    int64_t depth; /* -1 for no end of it */
    const int32_t *first, *row, *input0, *inputs;
    const int32_t *op;    /* -1 for a program that is not lowered */
    const int32_t *sizes; /* of groups */
    /* Rows. */
    const int32_t *kind, *flags, *wait, *work, *lane, *engine, *onto, *value, *resource0;
    const int32_t *seat, *group, *position, *by, *way, *flows, *kernel, *tiles, *workers;
    const double *core_s, *link_s, *latency_s, *bytes_per_s;
    const double *fixed_s, *before_s, *after_s, *tile_s;
    const int32_t *on;    /* resources, those of a row from resource0[row] */
    const double *shares; /* as many, or below 0 in the first place for none */
    double fence_s, step_s, signal_s, accumulate_slowdown, owner_slowdown, transfer_slowdown;
    double side_units, units, launch_s, within_s;
    /* Results. */
    double time_s, *phase_s;
    int64_t events;
} Simulation;

typedef struct {
    double time;
    int64_t order; /* times 16, and what happens */
    int32_t a, b;
} Event;

typedef struct {
    int64_t age;
    int32_t step;
} Waiter;

typedef struct {
    Waiter *heap;
    int32_t count, room;
} Crowd;

/* What of a compute is due when the rank's clock says so. */
typedef struct {
    double work;
    int32_t what, step;
} Part;

enum { LAST_STARTED, PART_DONE };

typedef struct {
    double when;
    int32_t count;
} Free;

typedef struct {
    int32_t first, count;                /* its steps */
    int32_t pending, clear, counts;      /* Scheduler: pending, _clear, len(_unfinished) */
    int32_t comm, comms;                 /* its _comm: from, to, in .comm */
    int32_t waiting;                     /* how many, in .waiting */
    int32_t seat_head, seat_tail;        /* _queues, in the order in which they were made */
    int32_t compute, computes;           /* _at */
    int32_t fence_open, unfinished0, segment0, lowered;
    int64_t exposed_done;
    int32_t computing, started, version; /* Rank: how many computes are under way */
    int32_t adding, moving, sums, added, last, number;
    double work, since, busy_since, idle_since, core_free, own_free[2];
    Part *parts;
    int32_t part_count, part_room, kernel, open;
    Free *free; /* Workers */
    int32_t free_count, workers;
    double tile_s;
} Rank;

typedef struct {
    double rate, takes;
} Most;

typedef struct {
    Simulation *in;
    Event *heap, *dues;
    int64_t count, room, order;
    int32_t due_count, *due_at; /* of a step the place of its end, from 1 */
    double end;
    Rank *rank;
    int32_t *rank_of, *before, *fences, *missing, *taker0, *takers, *comm, *waiting, *unfinished;
    int32_t *segment, *compute, *out;
    int32_t *seat_head, *seat_tail, *seat_next, *seat_count; /* steps let through; those started */
    uint8_t *done, *exposed, *moves, *is_held;
    int32_t *arrived, arrivals; /* who has come to the Fence that is next */
    int32_t *next;              /* step -> the one behind it in its lane or at its engine */
    int32_t *lane_head, *lane_tail, *engine_head, *engine_tail, *engine_taken;
    uint8_t *lane_busy;
    uint8_t *seen; /* signals */
    int32_t *waits;
    double *seconds; /* of transfers */
    int32_t *meeting0, *place0, *comers; /* of groups, and who has come: how many, then in order */
    int32_t *came, *seated;              /* and by position, from 1 */
    int32_t *number, *meeting, *mate;    /* of group steps; the other end of a shift */
    uint8_t *halves;
    double *over, *way_free; /* when the timer says so */
    int64_t age, *ages;
    uint8_t *busy; /* fifo */
    Crowd *crowd;
    int32_t *fronts;
    /* fair: of transfers, of links, and of the places of transfers on links */
    double *left, *speed, *since, *wanted, *level;
    int32_t *node0, *head, *tail, *users_on, *node_next, *node_prev, *node_step;
    uint8_t *on_links, *is_changed, *is_queued;
    int32_t *changed, changes, *queue, queue_from, queue_to;
    Most *most;
    int failed;
    void **owned;
    int32_t owning, own_room;
} State;

/* -- memory, freed all at once */

static void *room_for(State *s, int64_t count, size_t size)
{
    void *found = calloc((size_t)(count > 0 ? count : 1), size);
    if (s->owning == s->own_room) {
        void **more = realloc(s->owned, (size_t)(s->own_room + 64) * sizeof *more);
        if (!more) {
            free(found);
            s->failed = 1;
            return NULL;
        }
        s->owned = more;
        s->own_room += 64;
    }
    if (found)
        s->owned[s->owning++] = found;
    else
        s->failed = 1;
    return found;
}

#define ROOM(where, count) ((where) = room_for(s, (count), sizeof *(where)))

/* A sum that tables count with: memory does not suffice where it is beyond int32. */
static int32_t counted(State *s, int64_t sum)
{
    if (sum <= INT32_MAX)
        return (int32_t)sum;
    s->failed = 1;
    return 0;
}

/* -- events: a heap by time, those of one time in the order they were made */

static int before(const Event *x, const Event *y)
{
    return x->time < y->time || (x->time == y->time && x->order < y->order);
}

static void at(State *s, double time, int what, int32_t a, int32_t b)
{
    if (s->count == s->room) {
        int64_t room = 2 * s->room + 1024;
        Event *more = realloc(s->heap, (size_t)room * sizeof *more);
        if (!more) {
            s->failed = 1;
            return;
        }
        s->heap = more;
        s->room = room;
    }
    Event event = {time, (++s->order << 4) | what, a, b};
    int64_t i = s->count++;
    while (i) {
        int64_t up = (i - 1) / 2;
        if (!before(&event, &s->heap[up]))
            break;
        s->heap[i] = s->heap[up];
        i = up;
    }
    s->heap[i] = event;
}

/* Ends of transfers whose speed changes, one of each: a heap too, in which an end can move. */

static void put_due(State *s, int32_t i, Event event)
{
    s->dues[i] = event;
    s->due_at[event.a] = i + 1;
}

static void settle_due(State *s, int32_t i, Event event)
{
    while (i && before(&event, &s->dues[(i - 1) / 2])) {
        put_due(s, i, s->dues[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        int32_t down = 2 * i + 1;
        if (down >= s->due_count)
            break;
        if (down + 1 < s->due_count && before(&s->dues[down + 1], &s->dues[down]))
            down++;
        if (!before(&s->dues[down], &event))
            break;
        put_due(s, i, s->dues[down]);
        i = down;
    }
    put_due(s, i, event);
}

static void due(State *s, double time, int32_t t)
{
    Event event = {time, (++s->order << 4) | DUE, t, 0};
    settle_due(s, s->due_at[t] ? s->due_at[t] - 1 : s->due_count++, event);
}

static Event pop_due(State *s)
{
    Event top = s->dues[0], last = s->dues[--s->due_count];
    s->due_at[top.a] = 0;
    if (s->due_count)
        settle_due(s, 0, last);
    return top;
}

static Event pop(State *s)
{
    Event top = s->heap[0], last = s->heap[--s->count];
    int64_t i = 0;
    for (;;) {
        int64_t down = 2 * i + 1;
        if (down >= s->count)
            break;
        if (down + 1 < s->count && before(&s->heap[down + 1], &s->heap[down]))
            down++;
        if (!before(&s->heap[down], &last))
            break;
        s->heap[i] = s->heap[down];
        i = down;
    }
    if (s->count)
        s->heap[i] = last;
    return top;
}

/* -- when a step may start: drbench/plan/schedule.py */

/* Lookahead and at_hand of one rank; true counts of what follows are left in the rank. */
static void look_ahead(State *s, Rank *r, int32_t *unfinished_room, int32_t *segment_room)
{
    const Simulation *in = s->in;
    int32_t count = 0, fences = 0, fenced = 0;
    for (int32_t t = r->first; t < r->first + r->count; t++)
        fenced |= in->kind[in->row[t]] == FENCE;
    for (int32_t t = r->first; t < r->first + r->count; t++) {
        int32_t row = in->row[t], flags = in->flags[row], any = 0;
        for (int32_t i = in->input0[t]; i < in->input0[t + 1] && !any; i++) {
            int32_t value = r->first + in->inputs[i];
            any = s->moves[value] || in->flags[in->row[value]] & COMPUTES;
        }
        if (flags & COMPUTES)
            s->exposed[t] = !in->depth || flags & MAKES || any;
        else
            s->moves[t] = flags & MOVES || any;
        s->before[t] = count;
        count += s->exposed[t];
        s->fences[t] = fenced && flags & TOUCHES ? fences : -1;
        fences += in->kind[row] == FENCE;
    }
    r->lowered = r->count && in->op[r->first] >= 0;
    if (r->lowered) {
        for (int32_t t = r->first; t < r->first + r->count; t++) {
            int32_t computes = in->flags[in->row[t]] & COMPUTES;
            s->before[t] = in->depth ? in->op[t] : 2 * in->op[t] + !!computes;
        }
        count = s->before[r->first + r->count - 1];
    }
    r->counts = count + 1;
    r->unfinished0 = *unfinished_room;
    r->segment0 = *segment_room;
    *unfinished_room = counted(s, (int64_t)*unfinished_room + count + 1);
    *segment_room = counted(s, (int64_t)*segment_room + fences + 1);
}

static int needs_all_inputs(const Simulation *in, int32_t t)
{
    return in->seat[in->row[t]] < 0 && in->input0[t] < in->input0[t + 1];
}

static void queue_up(int32_t *next, int32_t *head, int32_t *tail, int32_t x)
{
    next[x] = -1;
    if (*head < 0)
        *head = x;
    else
        next[*tail] = x;
    *tail = x;
}

static void advance(State *s, Rank *r)
{
    const Simulation *in = s->in;
    const int32_t *unfinished = s->unfinished + r->unfinished0;
    while (r->clear < r->counts && !unfinished[r->clear])
        r->clear++;
    int64_t limit = r->lowered ? r->clear : r->exposed_done + in->depth;
    int all = in->depth < 0 && !r->lowered;
    while (r->comm < r->comms) {
        int32_t t = s->comm[r->comm];
        if (!all && s->before[t] > limit)
            break;
        int32_t seat = in->seat[in->row[t]];
        r->comm++;
        if (s->missing[t])
            s->is_held[t] = 1;
        else if (seat < 0)
            s->waiting[r->first + r->waiting++] = t;
        else {
            if (s->seat_next[seat] == -2) /* nothing of it was let through before */
                queue_up(s->seat_next, &r->seat_head, &r->seat_tail, seat);
            queue_up(s->next, &s->seat_head[seat], &s->seat_tail[seat], t);
        }
    }
}

static void schedule(State *s, Rank *r)
{
    const Simulation *in = s->in;
    r->comm = r->comms = r->compute = r->first;
    r->pending = r->count;
    int32_t computes = r->first;
    for (int32_t t = r->first; t < r->first + r->count; t++) {
        int32_t row = in->row[t], flags = in->flags[row];
        if (flags & AT_HAND && !(flags & HELD && s->fences[t] > 0)) {
            s->done[t] = 1;
            r->pending--;
        } else if (flags & COMPUTES)
            s->compute[computes++] = t;
        else if (flags & ANYTIME)
            s->waiting[r->first + r->waiting++] = t;
        else
            s->comm[r->comms++] = t;
        if (s->fences[t] >= 0 && in->kind[row] != FENCE && !s->done[t])
            s->segment[r->segment0 + s->fences[t]]++;
    }
    r->computes = computes;
    for (int32_t x = r->first; x < r->comms; x++) {
        int32_t t = s->comm[x];
        s->unfinished[r->unfinished0 + s->before[t]]++;
        for (int32_t i = in->input0[t]; needs_all_inputs(in, t) && i < in->input0[t + 1]; i++)
            s->missing[t] += !s->done[r->first + in->inputs[i]];
    }
    for (int32_t x = r->first; r->lowered && x < computes; x++)
        s->unfinished[r->unfinished0 + s->before[s->compute[x]]]++;
    advance(s, r);
}

/* Which steps take the value of each, of those that wait until all their inputs are there. */
static void find_takers(State *s)
{
    const Simulation *in = s->in;
    int32_t steps = in->first[in->ranks];
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t each = 0; each < in->ranks; each++) {
            const Rank *r = &s->rank[each];
            for (int32_t x = r->first; x < r->comms; x++) {
                int32_t t = s->comm[x];
                for (int32_t i = in->input0[t]; s->missing[t] && i < in->input0[t + 1]; i++) {
                    int32_t value = r->first + in->inputs[i];
                    if (s->done[value])
                        continue;
                    if (pass)
                        s->takers[s->taker0[value]++] = t;
                    else
                        s->taker0[value + 1]++;
                }
            }
        }
        if (!pass)
            for (int32_t t = 0; t < steps; t++)
                s->taker0[t + 1] += s->taker0[t];
    }
    memmove(s->taker0 + 1, s->taker0, (size_t)steps * sizeof *s->taker0);
    s->taker0[0] = 0;
}

static int ready(const State *s, const Rank *r, int32_t t)
{
    const Simulation *in = s->in;
    for (int32_t i = in->input0[t]; i < in->input0[t + 1]; i++)
        if (!s->done[r->first + in->inputs[i]])
            return 0;
    int32_t fence = s->fences[t];
    if (fence < 0)
        return 1;
    if (in->kind[in->row[t]] == FENCE)
        return r->fence_open == fence && !s->segment[r->segment0 + fence];
    return r->fence_open >= fence;
}

static int rising_steps(const void *x, const void *y)
{
    int32_t one = *(const int32_t *)x, two = *(const int32_t *)y;
    return (one > two) - (one < two);
}

/* Communication steps that may start now, into out. */
static int32_t take(State *s, Rank *r)
{
    int32_t count = 0, rest = 0, *waiting = s->waiting + r->first;
    for (int32_t x = 0; x < r->waiting; x++) {
        int32_t t = waiting[x];
        if (ready(s, r, t))
            s->out[count++] = t;
        else
            waiting[rest++] = t;
    }
    r->waiting = rest;
    if (count > 16)
        qsort(s->out, (size_t)count, sizeof *s->out, rising_steps);
    else
        for (int32_t x = 1; x < count; x++) {
            int32_t t = s->out[x], y = x;
            for (; y && s->out[y - 1] > t; y--)
                s->out[y] = s->out[y - 1];
            s->out[y] = t;
        }
    for (int32_t seat = r->seat_head; seat >= 0; seat = s->seat_next[seat])
        while (s->seat_head[seat] >= 0 && ready(s, r, s->seat_head[seat])) {
            s->out[count++] = s->seat_head[seat];
            s->seat_head[seat] = s->next[s->seat_head[seat]];
        }
    return count;
}

static int32_t next_compute(const State *s, const Rank *r, int32_t beyond)
{
    if (r->compute + beyond >= r->computes)
        return -1;
    int32_t t = s->compute[r->compute + beyond];
    int64_t needed = s->before[t];
    if (!r->lowered) {
        if (s->in->depth < 0)
            needed = 0;
        else
            needed += s->in->depth ? -s->in->depth : 1;
    }
    return r->clear >= needed && ready(s, r, t) ? t : -1;
}

static void finished(State *s, Rank *r, int32_t t)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], computes = in->flags[row] & COMPUTES;
    s->done[t] = 1;
    r->pending--;
    for (int32_t x = s->taker0[t]; x < s->taker0[t + 1]; x++) {
        int32_t taker = s->takers[x];
        if (!--s->missing[taker] && s->is_held[taker]) {
            s->is_held[taker] = 0;
            s->waiting[r->first + r->waiting++] = taker;
        }
    }
    if (computes) {
        r->compute++;
        r->exposed_done += s->exposed[t];
    }
    if (!(in->flags[row] & ANYTIME) && (r->lowered || !computes))
        s->unfinished[r->unfinished0 + s->before[t]]--;
    if (s->fences[t] >= 0) {
        if (in->kind[row] == FENCE)
            r->fence_open++;
        else
            s->segment[r->segment0 + s->fences[t]]--;
    }
    advance(s, r);
}

/* -- one rank's core: rank.py */

static double slowed(const State *s, const Rank *r)
{
    const Simulation *in = s->in;
    double slow = 1 + (r->adding ? in->accumulate_slowdown : 0.0)
        + (r->added ? in->owner_slowdown : 0.0) + in->transfer_slowdown * r->moving;
    if (r->sums && in->side_units) {
        double used = r->kernel < 0 ? in->units : r->workers;
        double taken = in->side_units - (in->units - used);
        slow += used / (used - (taken > 0 ? taken : 0)) - 1;
    }
    return slow;
}

/* Where what is due next stands. */
static int32_t due_next(const Rank *r)
{
    int32_t next = 0;
    for (int32_t x = 1; x < r->part_count; x++) {
        const Part *one = &r->parts[x], *two = &r->parts[next];
        if (one->work != two->work ? one->work < two->work
            : one->what != two->what ? one->what < two->what : one->step < two->step)
            next = x;
    }
    return next;
}

static void predict(State *s, Rank *r)
{
    double after = (r->parts[due_next(r)].work - r->work) * slowed(s, r);
    at(s, r->since + after, COMPUTED, r->number, ++r->version);
}

static void part_due(State *s, Rank *r, double work, int32_t what, int32_t step)
{
    if (r->part_count == r->part_room) {
        Part *more = realloc(r->parts, (size_t)(2 * r->part_room + 4) * sizeof *more);
        if (!more) {
            s->failed = 1;
            return;
        }
        r->parts = more;
        r->part_room = 2 * r->part_room + 4;
    }
    r->parts[r->part_count++] = (Part){work, what, step};
}

/* Workers of kernel.py */

static Free take_free(Rank *r)
{
    int32_t next = 0;
    for (int32_t x = 1; x < r->free_count; x++) {
        const Free *one = &r->free[x], *two = &r->free[next];
        if (one->when != two->when ? one->when < two->when : one->count < two->count)
            next = x;
    }
    Free found = r->free[next];
    r->free[next] = r->free[--r->free_count];
    return found;
}

static void put_free(Rank *r, double when, int32_t count)
{
    r->free[r->free_count++] = (Free){when, count};
}

/* When the last of so many tiles starts. */
static double deal_tiles(Rank *r, int32_t tiles, double from)
{
    double last = from;
    int32_t early = 0, kept = 0;
    for (int32_t x = 0; x < r->free_count; x++) {
        if (r->free[x].when <= from)
            early += r->free[x].count;
        else
            r->free[kept++] = r->free[x];
    }
    r->free_count = kept;
    if (early)
        put_free(r, from, early);
    while (tiles) {
        Free found = take_free(r);
        last = found.when;
        if (!r->free_count && tiles > found.count) { /* all at once, as often as need be */
            int32_t waves = (tiles - 1) / found.count;
            put_free(r, last + waves * r->tile_s, found.count);
            tiles -= waves * found.count;
            continue;
        }
        int32_t taken = found.count < tiles ? found.count : tiles;
        tiles -= taken;
        if (found.count > taken)
            put_free(r, last, found.count - taken);
        put_free(r, last + r->tile_s, taken);
    }
    kept = 0;
    for (int32_t x = 0; x < r->free_count; x++) { /* free at the same time: as one */
        int32_t same = 0;
        while (same < kept && r->free[same].when != r->free[x].when)
            same++;
        if (same < kept)
            r->free[same].count += r->free[x].count;
        else
            r->free[kept++] = r->free[x];
    }
    r->free_count = kept;
    return last;
}

/* A part of a kernel, launched after so long if it is the first. */
static void deal(State *s, Rank *r, int32_t t, double now, double launch_s)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    if (r->kernel != in->kernel[row]) {
        r->work = 0.0;
        r->since = now;
        r->kernel = in->kernel[row];
        r->workers = in->workers[row];
        r->tile_s = in->tile_s[row];
        r->free_count = 0;
        put_free(r, launch_s, r->workers);
    }
    if (!r->computing)
        r->busy_since = now;
    r->computing++;
    r->open = 0;
    double last = deal_tiles(r, in->tiles[row], r->work + (now - r->since) / slowed(s, r));
    part_due(s, r, last + r->tile_s, PART_DONE, t);
    part_due(s, r, last, LAST_STARTED, t);
    predict(s, r);
}

static void beside(State *s, Rank *r, double now, int adds, int moves, int sums, int added)
{
    double slow = slowed(s, r);
    r->adding += adds;
    r->moving += moves;
    r->sums += sums;
    r->added += added;
    if (slowed(s, r) != slow) {
        r->work += (now - r->since) / slow;
        r->since = now;
        if (r->part_count)
            predict(s, r);
    }
}

static double on_core(Rank *r, double now, double seconds)
{
    r->core_free = (r->core_free > now ? r->core_free : now) + seconds;
    return r->core_free;
}

static double between(State *s, Rank *r, double now, double seconds)
{
    if (!r->computing)
        return on_core(r, now, seconds);
    for (int32_t x = 0; x < r->part_count; x++)
        r->parts[x].work += seconds;
    predict(s, r);
    return now + seconds;
}

static double copied(State *s, Rank *r, double now, double seconds)
{
    return s->in->adds_on_core ? on_core(r, now, seconds) : now + seconds;
}

/* -- transfers: what they slow, and how they get over links */

/* Steps that are complete when a group's transfer is. */
static int32_t members(const State *s, int32_t t)
{
    int32_t row = s->in->row[t];
    return s->in->flags[row] & SHIFTS ? 2 : s->in->sizes[s->in->group[row]];
}

static int32_t member(const State *s, int32_t t, int32_t x)
{
    if (s->in->flags[s->in->row[t]] & SHIFTS)
        return x ? s->mate[t] : t;
    return s->came[s->meeting[t] + x];
}

static void beside_transfer(State *s, int32_t t, double now, int sign)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], flags = in->flags[row];
    Rank *r = &s->rank[s->rank_of[t]];
    if (in->kind[row] == GROUP) {
        for (int32_t x = 0; in->transfer_slowdown && x < members(s, t); x++)
            beside(s, &s->rank[s->rank_of[member(s, t, x)]], now, 0, sign * in->flows[row], 0, 0);
        return;
    }
    if (flags & ADDS)
        beside(s, r, now, sign, 0, 0, 0);
    if (flags & TERM)
        beside(s, r, now, 0, 0, sign, 0);
    else if (in->transfer_slowdown)
        beside(s, r, now, 0, sign, 0, 0);
    if (in->onto[row] >= 0 && in->owner_slowdown)
        beside(s, &s->rank[in->onto[row]], now, 0, 0, 0, sign);
}

static void begin(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    s->seconds[t] = in->link_s[row];
    if (in->flags[row] & TERM && !s->rank[s->rank_of[t]].computing)
        s->seconds[t] = in->core_s[row]; /* by all workers: no product is beside it */
    beside_transfer(s, t, now, 1);
}

/* first come, first served */

static void crowd_push(State *s, Crowd *crowd, Waiter new)
{
    if (crowd->count == crowd->room) {
        int32_t room = 2 * crowd->room + 8;
        Waiter *more = realloc(crowd->heap, (size_t)room * sizeof *more);
        if (!more) {
            s->failed = 1;
            return;
        }
        crowd->heap = more;
        crowd->room = room;
    }
    int32_t i = crowd->count++;
    for (; i && new.age < crowd->heap[(i - 1) / 2].age; i = (i - 1) / 2)
        crowd->heap[i] = crowd->heap[(i - 1) / 2];
    crowd->heap[i] = new;
}

static int32_t crowd_pop(Crowd *crowd)
{
    int32_t step = crowd->heap[0].step, i = 0;
    Waiter last = crowd->heap[--crowd->count];
    for (;;) {
        int32_t down = 2 * i + 1;
        if (down >= crowd->count)
            break;
        if (down + 1 < crowd->count && crowd->heap[down + 1].age < crowd->heap[down].age)
            down++;
        if (last.age <= crowd->heap[down].age)
            break;
        crowd->heap[i] = crowd->heap[down];
        i = down;
    }
    if (crowd->count)
        crowd->heap[i] = last;
    return step;
}

static int shared_out(const Simulation *in, int32_t row)
{
    return in->resource0[row] < in->resource0[row + 1] && in->shares[in->resource0[row]] >= 0;
}

static void fifo_start_or_wait(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], from = in->resource0[row], to = in->resource0[row + 1];
    for (int32_t i = from; i < to; i++)
        if (s->busy[in->on[i]]) {
            crowd_push(s, &s->crowd[in->on[i]], (Waiter){s->ages[t], t});
            return;
        }
    for (int32_t i = from; i < to; i++)
        s->busy[in->on[i]] = 1;
    begin(s, t, now);
    if (shared_out(in, row))
        for (int32_t i = from; i < to; i++) {
            int known = 0;
            for (int32_t j = from; j < i; j++)
                known |= in->shares[j] == in->shares[i];
            if (in->shares[i] < 1 && !known)
                at(s, now + in->shares[i] * s->seconds[t], LEFT, t, i);
        }
    at(s, now + s->seconds[t], GONE, t, 0);
}

/* Nobody occupies the resources of a transfer that have this share any more (all if it is below
   0): whoever waits for one of them may go, the oldest first. */
static void fifo_free(State *s, int32_t t, double share, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], from = in->resource0[row], to = in->resource0[row + 1];
    int32_t *fronts = s->fronts, count = 0;
    for (int32_t i = from; i < to; i++)
        if (share < 0 || in->shares[i] == share) {
            s->busy[in->on[i]] = 0;
            if (s->crowd[in->on[i]].count)
                fronts[count++] = in->on[i];
        }
    while (count) {
        int32_t oldest = 0;
        for (int32_t x = 1; x < count; x++)
            if (s->crowd[fronts[x]].heap[0].age < s->crowd[fronts[oldest]].heap[0].age)
                oldest = x;
        int32_t link = fronts[oldest];
        if (s->busy[link]) { /* taken again: the others here go on waiting */
            fronts[oldest] = fronts[--count];
            continue;
        }
        fifo_start_or_wait(s, crowd_pop(&s->crowd[link]), now);
        if (!s->crowd[link].count)
            fronts[oldest] = fronts[--count];
    }
}

/* max-min fair sharing */

static void fair_change(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    if (!s->changes)
        at(s, now, SETTLE, 0, 0);
    for (int32_t i = in->resource0[row]; i < in->resource0[row + 1]; i++)
        if (!s->is_changed[in->on[i]]) {
            s->is_changed[in->on[i]] = 1;
            s->changed[s->changes++] = in->on[i];
        }
}

static double share_of(const Simulation *in, int32_t row, int32_t i)
{
    return in->shares[in->resource0[row]] < 0 ? 1.0 : in->shares[i];
}

static void fair_enter(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], from = in->resource0[row], to = in->resource0[row + 1];
    int crowded = 0;
    s->left[t] = s->seconds[t] - in->fixed_s[row];
    s->since[t] = now;
    s->on_links[t] = 1;
    for (int32_t i = from; i < to; i++) {
        int32_t link = in->on[i], node = s->node0[t] + i - from;
        s->node_next[node] = -1;
        s->node_prev[node] = s->users_on[link] ? s->tail[link] : -1;
        if (s->users_on[link]++)
            s->node_next[s->tail[link]] = node;
        else
            s->head[link] = node;
        s->tail[link] = node;
        s->wanted[link] += share_of(in, row, i);
        crowded |= s->wanted[link] > FULL;
    }
    if (crowded)
        fair_change(s, t, now);
    else {
        s->speed[t] = 1.0;
        due(s, now + s->left[t], t);
    }
}

static void fair_ask(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    double fixed_s = in->fixed_s[row];
    begin(s, t, now);
    if (in->resource0[row] == in->resource0[row + 1] || s->seconds[t] <= fixed_s)
        at(s, now + s->seconds[t], GONE, t, 0);
    else if (fixed_s)
        at(s, now + fixed_s, ENTER, t, 0);
    else
        fair_enter(s, t, now);
}

static void fair_release(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], from = in->resource0[row], to = in->resource0[row + 1];
    int crowded = 0;
    if (!s->on_links[t])
        return;
    s->on_links[t] = 0;
    for (int32_t i = from; i < to; i++) {
        int32_t link = in->on[i], node = s->node0[t] + i - from;
        int32_t next = s->node_next[node], prev = s->node_prev[node];
        if (prev < 0)
            s->head[link] = next;
        else
            s->node_next[prev] = next;
        if (next < 0)
            s->tail[link] = prev;
        else
            s->node_prev[next] = prev;
        s->users_on[link]--;
        crowded |= s->wanted[link] > FULL && s->users_on[link];
        s->wanted[link] = s->users_on[link] ? s->wanted[link] - share_of(in, row, i) : 0.0;
    }
    if (crowded)
        fair_change(s, t, now);
}

/* Levels of links/levels.py. */

static void look_at(State *s, int32_t link)
{
    if (s->is_queued[link])
        return;
    s->is_queued[link] = 1;
    s->queue[s->queue_to++] = link;
    if (s->queue_to > s->in->resources)
        s->queue_to = 0;
}

static double rate_of(const State *s, int32_t t, int32_t but)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    double rate = in->bytes_per_s[row];
    for (int32_t i = in->resource0[row]; i < in->resource0[row + 1]; i++)
        if (in->on[i] != but && s->level[in->on[i]] < rate)
            rate = s->level[in->on[i]];
    return rate;
}

static double level_of(State *s, int32_t link)
{
    const Simulation *in = s->in;
    if (s->wanted[link] <= FULL)
        return INFINITY;
    int32_t count = 0;
    double wants = 0, taken = 0;
    for (int32_t node = s->head[link]; node >= 0; node = s->node_next[node]) {
        int32_t t = s->node_step[node], row = in->row[t];
        double share = share_of(in, row, in->resource0[row] + node - s->node0[t]);
        Most most = {rate_of(s, t, link), share / in->bytes_per_s[row]};
        s->most[count++] = most;
        wants += most.takes;
        taken += most.takes * most.rate;
    }
    if (taken <= 1 + SAME)
        return INFINITY;
    double found = 0, higher = 1.0 / wants;
    while (higher > found) {
        double rest = 1.0;
        found = higher;
        wants = 0;
        for (int32_t x = 0; x < count; x++)
            if (s->most[x].rate < found)
                rest -= s->most[x].takes * s->most[x].rate;
            else
                wants += s->most[x].takes;
        higher = wants ? rest / wants : found;
    }
    return found;
}

/* Links whose level moved are added to .changed. */
static void find_levels(State *s)
{
    const Simulation *in = s->in;
    for (int32_t x = 0; x < s->changes; x++)
        look_at(s, s->changed[x]);
    for (int64_t looked = 0; s->queue_from != s->queue_to; looked++) {
        int32_t link = s->queue[s->queue_from++];
        if (s->queue_from > in->resources)
            s->queue_from = 0;
        s->is_queued[link] = 0;
        double same = ldexp(SAME, (int)(looked >> PATIENCE));
        double old = s->level[link], new = level_of(s, link);
        if (new == old || (old < INFINITY && fabs(new - old) <= same * old))
            continue;
        s->level[link] = new;
        if (!s->is_changed[link]) {
            s->is_changed[link] = 1;
            s->changed[s->changes++] = link;
        }
        double low = new < old ? new : old;
        int32_t node = s->users_on[link] ? s->head[link] : -1;
        for (; node >= 0; node = s->node_next[node]) {
            int32_t row = in->row[s->node_step[node]];
            if (in->bytes_per_s[row] <= low)
                continue;
            for (int32_t i = in->resource0[row]; i < in->resource0[row + 1]; i++) {
                int32_t other = in->on[i];
                if (other != link && s->level[other] > low && s->wanted[other] > FULL)
                    look_at(s, other);
            }
        }
    }
}

static void fair_settle(State *s, double now)
{
    const Simulation *in = s->in;
    find_levels(s);
    for (int32_t x = 0; x < s->changes; x++) {
        int32_t link = s->changed[x];
        s->is_changed[link] = 0;
        int32_t node = s->users_on[link] ? s->head[link] : -1;
        for (; node >= 0; node = s->node_next[node]) {
            int32_t t = s->node_step[node];
            double speed = rate_of(s, t, -1) / in->bytes_per_s[in->row[t]];
            if (speed == s->speed[t])
                continue;
            double left = s->left[t] - s->speed[t] * (now - s->since[t]);
            s->left[t] = left > 0.0 ? left : 0.0;
            s->speed[t] = speed;
            s->since[t] = now;
            due(s, now + s->left[t] / speed, t);
        }
    }
    s->changes = 0;
}

/* lanes and copy engines */

static void ask(State *s, int32_t t, double now)
{
    s->ages[t] = ++s->age;
    if (s->in->fair)
        fair_ask(s, t, now);
    else
        fifo_start_or_wait(s, t, now);
}

static void ask_engine(State *s, int32_t t, double now)
{
    int32_t engine = s->in->engine[s->in->row[t]];
    if (s->in->copy_engines && engine >= 0) {
        if (s->engine_taken[engine] == s->in->copy_engines) {
            queue_up(s->next, &s->engine_head[engine], &s->engine_tail[engine], t);
            return;
        }
        s->engine_taken[engine]++;
    }
    ask(s, t, now);
}

static void free_engine(State *s, int32_t t, double now)
{
    int32_t engine = s->in->engine[s->in->row[t]];
    if (!s->in->copy_engines || engine < 0)
        return;
    int32_t following = s->engine_head[engine];
    if (following < 0)
        s->engine_taken[engine]--;
    else {
        s->engine_head[engine] = s->next[following];
        ask(s, following, now);
    }
}

static void ask_lane(State *s, int32_t t, double now)
{
    int32_t lane = s->in->lane[s->in->row[t]];
    if (lane >= 0) {
        if (s->lane_busy[lane]) {
            queue_up(s->next, &s->lane_head[lane], &s->lane_tail[lane], t);
            return;
        }
        s->lane_busy[lane] = 1;
    }
    ask_engine(s, t, now);
}

static void go_on(State *s, int32_t lane, double now)
{
    int32_t following = s->lane_head[lane];
    if (following < 0)
        s->lane_busy[lane] = 0;
    else {
        s->lane_head[lane] = s->next[following];
        ask_engine(s, following, now);
    }
}

/* -- what ranks do: simulate.py */

static void transfer(State *s, Rank *r, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], flags = in->flags[row];
    now = in->core_s[row] ? on_core(r, now, in->core_s[row]) : now;
    if (!(flags & OWN_LINK)) {
        ask_lane(s, t, now);
        return;
    }
    double *free = &r->own_free[!!(flags & SENDS)];
    *free = (*free > now ? *free : now) + in->link_s[row];
    at(s, *free + in->latency_s[row], DONE, t, 0);
}

static void arrive_at_fence(State *s, int32_t t, double now)
{
    s->arrived[s->arrivals++] = t;
    if (s->arrivals == s->in->ranks) {
        for (int32_t x = 0; x < s->in->ranks; x++)
            at(s, now + s->in->fence_s, DONE, s->arrived[x], 0);
        s->arrivals = 0;
    }
}

static void group_start(State *s, Rank *r, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    s->number[t] = s->seat_count[in->seat[row]]++;
    if (in->flags[row] & THROTTLED) {
        double *free = &s->way_free[in->way[row]];
        *free = (*free > now ? *free : now) + in->link_s[row] + in->fixed_s[row];
        s->over[t] = *free + in->latency_s[row];
    }
    now = in->before_s[row] < 0 ? now : copied(s, r, now, in->before_s[row]);
    at(s, now, COME, t, 0);
}

static void start(State *s, Rank *r, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], value = in->value[row];
    double core_s = in->core_s[row];
    switch (in->kind[row]) {
    case OWN:
        now = core_s ? on_core(r, now, core_s) : now;
        if (in->flags[row] & ADDS)
            beside(s, r, now, 1, 0, 0, 0);
        at(s, now + in->link_s[row], OWN_DONE, t, 0);
        break;
    case MOVE:
    case PUSH:
        transfer(s, r, t, now);
        break;
    case FENCE:
        arrive_at_fence(s, t, now);
        break;
    case GROUP:
        group_start(s, r, t, now);
        break;
    case SIDE_ON_CORE:
        at(s, between(s, r, now, core_s), DONE, t, 0);
        break;
    case SIDE:
        at(s, now, SUM, t, 0); /* after a product that starts now */
        break;
    case OFFER:
        at(s, now + in->signal_s, SEE, value, 0);
        at(s, now, DONE, t, 0);
        break;
    case AWAIT:
    case TAKE:
        if (!s->seen[value])
            s->waits[value] = t;
        else if (in->kind[row] == AWAIT)
            at(s, now, DONE, t, 0);
        else
            transfer(s, r, t, now);
        break;
    }
}

static void wake(State *s, Rank *r, double now)
{
    const Simulation *in = s->in;
    if (r->computing && in->adds_on_core)
        return;
    int32_t count = take(s, r);
    for (int32_t x = 0; x < count; x++) {
        int32_t t = s->out[x];
        if (in->kind[in->row[t]] == ALIAS) { /* memory of other steps, seen differently */
            at(s, now, DONE_SEEN, t, 0);
            continue;
        }
        r->started++;
        start(s, r, t, now);
    }
    int32_t t = -1;
    if (!r->computing)
        t = next_compute(s, r, 0);
    else if (r->open && r->kernel >= 0) {
        t = next_compute(s, r, r->computing);
        t = t >= 0 && in->kernel[in->row[t]] == r->kernel ? t : -1;
    }
    if (t < 0)
        return;
    now = now > r->core_free ? now : r->core_free;
    double started_s = in->step_s * (1 + r->started);
    r->started = 0;
    if (!r->computing)
        in->phase_s[r->last] += now - r->idle_since;
    if (in->kernel[in->row[t]] >= 0) {
        deal(s, r, t, now, in->launch_s + started_s);
        return;
    }
    r->work = 0.0;
    r->since = r->busy_since = now;
    r->kernel = -1;
    r->computing++;
    part_due(s, r, in->core_s[in->row[t]] + started_s, PART_DONE, t);
    predict(s, r);
}

static void finish(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    Rank *r = &s->rank[s->rank_of[t]];
    r->last = in->wait[row];
    s->end = now > s->end ? now : s->end;
    finished(s, r, t);
    if (in->kind[row] == PUSH)
        at(s, now + in->signal_s, SEE, in->value[row], 0);
    wake(s, r, now);
}

static void computed(State *s, Rank *r, int32_t version, double now)
{
    if (version != r->version)
        return; /* its speed has changed since */
    int32_t next = due_next(r);
    Part part = r->parts[next];
    r->parts[next] = r->parts[--r->part_count];
    if (r->part_count)
        predict(s, r);
    if (part.what == LAST_STARTED)
        r->open = 1;
    else {
        if (!--r->computing) {
            r->idle_since = now;
            s->in->phase_s[s->in->work[s->in->row[part.step]]] += now - r->busy_since;
        }
        finished(s, r, part.step);
    }
    wake(s, r, now);
}

/* -- group steps: simulate_groups.py */

static void group_arrived(State *s, int32_t t, double now)
{
    double after_s = s->in->after_s[s->in->row[t]];
    if (after_s < 0)
        finish(s, t, now);
    else
        at(s, copied(s, &s->rank[s->rank_of[t]], now, after_s), DONE, t, 0);
}

static void group_at_due(State *s, int32_t t, double now)
{
    if (s->over[t] > now)
        at(s, s->over[t], ARRIVED, t, 0);
    else
        group_arrived(s, t, now);
}

static void group_part(State *s, int32_t t, double now)
{
    int32_t flags = s->in->flags[s->in->row[t]];
    if (flags & SHIFTS && --s->halves[t])
        return;
    if (flags & THROTTLED)
        group_at_due(s, t, now);
    else
        group_arrived(s, t, now);
}

/* What this rank sends, and what it receives, as far as the other side has come. */
static void group_shift(State *s, int32_t t, const int32_t *seated, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], size = in->sizes[in->group[row]], me = in->position[row];
    int32_t ahead = (me + in->by[row]) % size, behind = (me - in->by[row] + size) % size;
    int32_t ends[2][2] = {{me, ahead}, {behind, me}};
    s->halves[t] = 2;
    for (int way = 0; way < 2; way++) {
        int32_t both[2] = {seated[ends[way][0]] - 1, seated[ends[way][1]] - 1};
        if (both[0] < 0 || both[1] < 0)
            continue;
        int32_t sent = in->row[both[0]];
        if (!(in->flags[sent] & THROTTLED) && !in->adds_on_core) {
            s->mate[both[0]] = both[1];
            ask_lane(s, both[0], now);
            continue;
        }
        for (int x = 0; x < 2; x++)
            if (in->flags[sent] & THROTTLED)
                group_part(s, both[x], now);
            else {
                Rank *r = &s->rank[s->rank_of[both[x]]];
                at(s, between(s, r, now, in->link_s[sent] / 2), PART, both[x], 0);
            }
    }
}

static void group_come(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t], flags = in->flags[row], group = in->group[row];
    int32_t size = in->sizes[group], first = s->place0[group] + s->number[t] * size;
    int32_t *comers = &s->comers[s->meeting0[group] + s->number[t]];
    s->came[first + (*comers)++] = t;
    s->seated[first + in->position[row]] = t + 1;
    if (flags & ALONE)
        group_arrived(s, t, now);
    else if (flags & SHIFTS)
        group_shift(s, t, s->seated + first, now);
    else if (*comers == size) {
        s->meeting[t] = first;
        if (!(flags & THROTTLED) && !in->adds_on_core) {
            ask_lane(s, t, now);
            return;
        }
        for (int32_t x = 0; x < size; x++) {
            int32_t each = s->came[first + x];
            Rank *r = &s->rank[s->rank_of[each]];
            if (flags & THROTTLED)
                group_at_due(s, each, now);
            else
                at(s, between(s, r, now, in->link_s[row]), ARRIVED, each, 0);
        }
    }
}

static void gone(State *s, int32_t t, double now)
{
    const Simulation *in = s->in;
    int32_t row = in->row[t];
    beside_transfer(s, t, now, -1);
    if (in->fair)
        fair_release(s, t, now);
    else
        fifo_free(s, t, shared_out(in, row) ? 1.0 : -1.0, now);
    free_engine(s, t, now);
    if (in->lane[row] >= 0) {
        if (in->kind[row] == PUSH && in->signal_s) /* written by the same queue */
            at(s, now + in->signal_s, GO_ON, in->lane[row], 0);
        else
            go_on(s, in->lane[row], now);
    }
    if (in->kind[row] == GROUP)
        for (int32_t x = 0; x < members(s, t); x++)
            group_part(s, member(s, t, x), now);
    else if (in->latency_s[row])
        at(s, now + in->latency_s[row], DONE, t, 0);
    else
        finish(s, t, now);
}

static void see(State *s, int32_t value, double now)
{
    int32_t t = s->waits[value];
    s->seen[value] = 1;
    s->waits[value] = -1;
    if (t < 0)
        return;
    if (s->in->kind[s->in->row[t]] == AWAIT)
        at(s, now, DONE, t, 0);
    else
        transfer(s, &s->rank[s->rank_of[t]], t, now);
}

static void act(State *s, const Event *event)
{
    double now = event->time;
    int32_t a = event->a;
    switch (event->order & 15) {
    case DONE_SEEN:
        finished(s, &s->rank[s->rank_of[a]], a);
        wake(s, &s->rank[s->rank_of[a]], now);
        break;
    case DONE:
        finish(s, a, now);
        break;
    case COMPUTED:
        computed(s, &s->rank[a], event->b, now);
        break;
    case OWN_DONE:
        if (s->in->flags[s->in->row[a]] & ADDS)
            beside(s, &s->rank[s->rank_of[a]], now, -1, 0, 0, 0);
        finish(s, a, now);
        break;
    case SUM:
        ask_lane(s, a, now);
        break;
    case GONE:
        gone(s, a, now);
        break;
    case LEFT:
        fifo_free(s, a, s->in->shares[event->b], now);
        break;
    case DUE:
        gone(s, a, now);
        break;
    case SETTLE:
        fair_settle(s, now);
        break;
    case SEE:
        see(s, a, now);
        break;
    case GO_ON:
        go_on(s, a, now);
        break;
    case COME:
        group_come(s, a, now);
        break;
    case PART:
        group_part(s, a, now);
        break;
    case ARRIVED:
        group_arrived(s, a, now);
        break;
    case ENTER:
        fair_enter(s, a, now);
        break;
    }
}

static void prepare_groups(State *s)
{
    const Simulation *in = s->in;
    int32_t steps = in->first[in->ranks], any = 0, workers = 0, *most;
    ROOM(s->seat_head, in->seats), ROOM(s->seat_tail, in->seats), ROOM(s->seat_next, in->seats);
    ROOM(s->seat_count, in->seats), ROOM(s->way_free, in->ways);
    ROOM(s->meeting0, (int64_t)in->groups + 1), ROOM(s->place0, (int64_t)in->groups + 1);
    ROOM(most, in->groups);
    if (s->failed)
        return;
    for (int32_t t = 0; t < steps; t++) {
        int32_t row = in->row[t], group = in->group[row];
        workers = in->workers[row] > workers ? in->workers[row] : workers;
        if (in->kind[row] != GROUP)
            continue;
        int32_t count = ++s->seat_count[in->seat[row]];
        most[group] = count > most[group] ? count : most[group];
        any = 1;
    }
    for (int32_t seat = 0; seat < in->seats; seat++) {
        s->seat_head[seat] = -1;
        s->seat_next[seat] = -2;
        s->seat_count[seat] = 0;
    }
    for (int32_t group = 0; group < in->groups; group++) {
        int64_t places = (int64_t)most[group] * in->sizes[group];
        s->meeting0[group + 1] = counted(s, (int64_t)s->meeting0[group] + most[group]);
        s->place0[group + 1] = counted(s, s->place0[group] + places);
    }
    if (s->failed)
        return;
    ROOM(s->comers, s->meeting0[in->groups]);
    ROOM(s->came, s->place0[in->groups]), ROOM(s->seated, s->place0[in->groups]);
    if (any) {
        ROOM(s->number, steps), ROOM(s->meeting, steps), ROOM(s->mate, steps);
        ROOM(s->halves, steps), ROOM(s->over, steps);
    }
    for (int32_t each = 0; workers && each < in->ranks; each++)
        ROOM(s->rank[each].free, (int64_t)workers + 1);
}

static void prepare(State *s)
{
    Simulation *in = s->in;
    int32_t ranks = in->ranks, steps = in->first[ranks], links = in->resources, nodes = 0;
    ROOM(s->rank, ranks), ROOM(s->arrived, ranks), ROOM(s->engine_taken, ranks);
    ROOM(s->engine_head, ranks), ROOM(s->engine_tail, ranks);
    ROOM(s->rank_of, steps), ROOM(s->before, steps), ROOM(s->fences, steps);
    ROOM(s->missing, steps), ROOM(s->taker0, (int64_t)steps + 2), ROOM(s->takers, in->input0[steps]);
    ROOM(s->comm, steps), ROOM(s->waiting, steps), ROOM(s->compute, steps);
    ROOM(s->out, steps), ROOM(s->done, steps), ROOM(s->exposed, steps);
    ROOM(s->moves, steps), ROOM(s->is_held, steps), ROOM(s->next, steps);
    ROOM(s->lane_head, in->lanes), ROOM(s->lane_tail, in->lanes), ROOM(s->lane_busy, in->lanes);
    ROOM(s->seen, in->values), ROOM(s->waits, in->values);
    ROOM(s->seconds, steps), ROOM(s->ages, steps);
    if (s->failed)
        return;
    for (int32_t lane = 0; lane < in->lanes; lane++)
        s->lane_head[lane] = -1;
    for (int32_t value = 0; value < in->values; value++)
        s->waits[value] = -1;
    if (in->fair) {
        ROOM(s->node0, (int64_t)steps + 1);
        for (int32_t t = 0; t < steps && !s->failed; t++) {
            s->node0[t] = nodes;
            int32_t taken = in->resource0[in->row[t] + 1] - in->resource0[in->row[t]];
            nodes = counted(s, (int64_t)nodes + taken);
        }
        ROOM(s->node_next, nodes), ROOM(s->node_prev, nodes), ROOM(s->node_step, nodes);
        ROOM(s->left, steps), ROOM(s->speed, steps), ROOM(s->since, steps);
        ROOM(s->due_at, steps), ROOM(s->dues, steps), ROOM(s->on_links, steps);
        ROOM(s->most, steps);
        ROOM(s->wanted, links), ROOM(s->head, links), ROOM(s->tail, links);
        ROOM(s->users_on, links), ROOM(s->is_changed, links), ROOM(s->is_queued, links);
        ROOM(s->changed, links), ROOM(s->queue, (int64_t)links + 1), ROOM(s->level, links);
        for (int32_t link = 0; link < links && !s->failed; link++)
            s->level[link] = INFINITY;
        for (int32_t t = 0; t < steps && !s->failed; t++) {
            int32_t last = t + 1 < steps ? s->node0[t + 1] : nodes;
            for (int32_t node = s->node0[t]; node < last; node++)
                s->node_step[node] = t;
        }
    } else {
        ROOM(s->busy, links), ROOM(s->crowd, links), ROOM(s->fronts, (int64_t)links + 1);
    }
    if (s->failed)
        return;
    int32_t unfinished_room = 0, segment_room = 0;
    for (int32_t each = 0; each < ranks; each++) {
        Rank *r = &s->rank[each];
        r->number = each;
        r->first = in->first[each];
        r->count = in->first[each + 1] - r->first;
        r->seat_head = r->kernel = s->engine_head[each] = -1;
        r->last = in->waits;
        for (int32_t t = r->first; t < r->first + r->count; t++)
            s->rank_of[t] = each;
        look_ahead(s, r, &unfinished_room, &segment_room);
    }
    ROOM(s->unfinished, unfinished_room), ROOM(s->segment, segment_room);
    if (s->failed)
        return;
    prepare_groups(s);
    if (s->failed)
        return;
    for (int32_t each = 0; each < ranks; each++)
        schedule(s, &s->rank[each]);
    find_takers(s);
}

/* What the tables are made for: the two sides must agree. */
int32_t drbench_events_abi(void)
{
    return ABI;
}

/* Run it: OK, STUCK if steps are left that can never start, BEYOND within_s, NO_MEMORY. */
int32_t drbench_events_run(Simulation *in)
{
    State state = {.in = in}, *s = &state;
    int32_t found = OK;
    prepare(s);
    for (int32_t each = 0; each < in->ranks && !s->failed; each++)
        wake(s, &s->rank[each], 0.0);
    while ((s->count || s->due_count) && !s->failed) {
        int first = s->due_count && (!s->count || before(&s->dues[0], &s->heap[0]));
        Event event = first ? pop_due(s) : pop(s);
        if (event.time > in->within_s) {
            found = BEYOND;
            break;
        }
        act(s, &event);
    }
    if (!s->failed && found == OK) {
        in->time_s = s->end;
        for (int32_t each = 0; each < in->ranks; each++) {
            const Rank *r = &s->rank[each];
            found = r->pending ? STUCK : found;
            in->time_s = r->idle_since > in->time_s ? r->idle_since : in->time_s;
        }
        for (int32_t each = 0; each < in->ranks; each++)
            in->phase_s[s->rank[each].last] += in->time_s - s->rank[each].idle_since;
    }
    in->events = s->order;
    for (int32_t link = 0; s->crowd && link < in->resources; link++)
        free(s->crowd[link].heap);
    for (int32_t each = 0; s->rank && each < in->ranks; each++)
        free(s->rank[each].parts);
    for (int32_t x = 0; x < s->owning; x++)
        free(s->owned[x]);
    free(s->owned);
    free(s->heap);
    return s->failed ? NO_MEMORY : found;
}

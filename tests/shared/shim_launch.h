// The launcher, after the kernels: by name, with pointers to arguments as cuLaunchKernel takes them, and their sizes, which must be
// what the kernel declares.

template <class... P, size_t... I>
static int call(void (*kernel)(P...), void** arguments, const int* sizes, int count, std::index_sequence<I...>) {
    if (sizes) {
        const int declared[] = {(int)sizeof(P)...};
        return count == sizeof...(P) && !std::memcmp(sizes, declared, sizeof declared) ? 0 : 2;
    }
    kernel(*(P*)arguments[I]...);
    return 0;
}

template <auto kernel, class... P>
static int call(void (*)(P...), void** arguments, const int* sizes, int count) {
    return call(kernel, arguments, sizes, count, std::index_sequence_for<P...>());
}

struct Entry { const char* name; int (*call)(void**, const int*, int); };
#define ENTRY(kernel) {#kernel, [](void** a, const int* s, int n) { return call<kernel>(kernel, a, s, n); }},
static const Entry entries[] = {KERNELS(ENTRY)};

extern "C" int launch(const char* name, const unsigned* grid, const unsigned* block, void** arguments, const int* sizes, int count) {
    const Entry* entry = nullptr;
    for (const Entry& e : entries) if (!std::strcmp(e.name, name)) entry = &e;
    if (!entry) return 1;
    if (sizes) if (int wrong = entry->call(arguments, sizes, count)) return wrong;
    static thread_local int (*chosen)(void**, const int*, int);
    chosen = entry->call;
    body = [](void** a) { chosen(a, nullptr, 0); };
    body_arguments = arguments;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    static thread_local Coroutine threads[1024];
    const unsigned size = block[0] * block[1] * block[2];
    for (unsigned b = 0; b < grid[0] * grid[1] * grid[2]; ++b) {
        blockIdx = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
        for (unsigned t = 0; t < size; ++t) {
            Coroutine& thread = threads[t];
            thread.index = threadIdx = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};
            if (t && threads[0].done) { running = nullptr; body(arguments); continue; }
            if (!thread.stack) thread.stack.reset(new char[STACK]);
            thread.done = false;
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.get();
            thread.context.uc_stack.ss_size = STACK;
            thread.context.uc_link = &scheduler;
            makecontext(&thread.context, run_thread, 0);
            running = &thread;
            swapcontext(&scheduler, &thread.context);
        }
        for (bool left = !threads[0].done; left;) {
            left = false;
            for (unsigned t = 0; t < size; ++t) {
                if (threads[t].done) continue;
                running = &threads[t];
                threadIdx = running->index;
                swapcontext(&scheduler, &running->context);
                left = left || !running->done;
            }
        }
    }
    return 0;
}

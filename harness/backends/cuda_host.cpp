// CUDA on a host C++ compiler, the runtime's side: a kernel's program serves dispatches, one a line of standard input,
//
//     MEMORY LENGTH LOG JOBS ENTRY gx gy gz bx by bz REVERSE POISON OFFSET BYTES [OFFSET BYTES ...]
//
// and answers each with a line, the end of every job: its exit code, or minus the signal that ended it. A job is a process of
// its own, forked for a part of the grid, whose blocks it runs one after the other. It maps the file MEMORY, in which the
// buffers lie, and what it prints goes to the file LOG with the job's number behind.
//
// A lane is a plain call on a fiber. A lane that comes to a barrier leaves its fiber waiting, and the next lane starts
// on another one, so a kernel without barriers never switches. Exit codes: 0 done, 2 usage or out of memory.

#include "cuda_host.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif

// The row that is run must be the row that is named.
#if SAMEBITS_CLANG && !defined(__clang__)
#error "clang++ on PATH is another compiler"
#elif !SAMEBITS_CLANG && defined(__clang__)
#error "g++ on PATH is clang++ by another name"
#elif SAMEBITS_SANITIZED && !defined(ADDRESS_SANITIZER)
#error "the compiler leaves out the sanitizers that it was asked for"
#endif

#ifdef ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define UNCHECKED __attribute__((no_sanitize_address))
#else
#define UNCHECKED
#endif

// A switch saves what the callee must keep on the old stack and takes it from the new one. The jump is indirect
// because a return to another stack misses the processor's return predictor.
#if !defined(SAMEBITS_UCONTEXT) && defined(__x86_64__)
extern "C" void samebits_switch(void **save, void *load);
asm(R"(
.text
.type samebits_switch, @function
samebits_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
.size samebits_switch, . - samebits_switch
)");
constexpr int SAVED_WORDS = 8;   // six registers, the address to go to, and the return address of that function: none
constexpr int ADDRESS_WORD = 6;
#elif !defined(SAMEBITS_UCONTEXT) && defined(__aarch64__)
extern "C" void samebits_switch(void **save, void *load);
asm(R"(
.text
.type samebits_switch, %function
samebits_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    br x30
.size samebits_switch, . - samebits_switch
)");
constexpr int SAVED_WORDS = 20;
constexpr int ADDRESS_WORD = 11;
#else
#define UCONTEXT 1
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

extern const samebits::Entry samebits_entries[];
extern "C" unsigned char samebits_shared_begin[], samebits_shared_end[];

namespace samebits {

constexpr unsigned int MAX_LANES = 1024;
constexpr std::size_t PAGE = 65536;  // of any Linux: also the guard below a stack
constexpr std::size_t STACK = 4 * PAGE;

struct Fiber {
    char *stack;
    std::size_t size;
    uint3 thread;
#ifdef UCONTEXT
    ucontext_t context;
#else
    void *pointer;
#endif
#ifdef ADDRESS_SANITIZER
    void *fake_stack;
#endif
};

Fiber outside;            // the process's own stack
Fiber fibers[MAX_LANES];  // made when first needed; they outlive the block
Fiber *current = &outside;
unsigned int made, used;  // fibers that exist; that have begun in this block

const Entry *entry;
Argument arguments[32];
bool reverse;
unsigned int lanes, next_lane;  // of the block; the next one to start

// A phase runs from barrier to barrier: it resumes `ready` in order and gathers `waiting`.
Fiber *lists[2][MAX_LANES];
Fiber **ready = lists[0], **waiting = lists[1];
unsigned int ready_count, ready_next, waiting_count;
int barrier_line;
bool diverged, divergence_told;

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "cuda_host: %s\n", what);
    _exit(2);
}

void fiber_main();

void make(Fiber &fiber, unsigned int index) {
    char *low = static_cast<char *>(
        mmap(nullptr, PAGE + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (low == MAP_FAILED || mprotect(low, PAGE, PROT_NONE) != 0) fail("no memory for a stack");
    fiber.stack = low + PAGE;
    fiber.size = STACK - index % 32 * 192;  // else the live part of every stack would fall into the same cache sets
#ifdef UCONTEXT
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = fiber.size;
    makecontext(&fiber.context, fiber_main, 0);
#else
    auto *top = reinterpret_cast<std::uintptr_t *>(fiber.stack + fiber.size) - SAVED_WORDS;
    top[ADDRESS_WORD] = reinterpret_cast<std::uintptr_t>(fiber_main);
    fiber.pointer = top;
#endif
}

void go(Fiber &to) {
    Fiber &from = *current;
    current = &to;
    threadIdx = to.thread;
#ifdef ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.size);
#endif
#ifdef UCONTEXT
    swapcontext(&from.context, &to.context);
#else
    samebits_switch(&from.pointer, to.pointer);
#endif
#ifdef ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

// The fiber to run next, from one that waits or has nothing left to do.
Fiber &next() {
    if (next_lane < lanes) {
        if (used == made) make(fibers[made], made), made++;
        return fibers[used++];
    }
    if (ready_next == ready_count) {
        if (waiting_count == 0) return outside;
        if (waiting_count < lanes) diverged = true;
        Fiber **swap = ready;
        ready = waiting;
        waiting = swap;
        ready_count = waiting_count;
        ready_next = waiting_count = 0;
    }
    return *ready[ready_next++];
}

__attribute__((noinline)) void barrier(int line) {
    if (waiting_count == 0) barrier_line = line;
    if (line != barrier_line) diverged = true;
    waiting[waiting_count++] = current;
    Fiber &to = next();
    if (&to != current) go(to);
}

// The warp's A and the columns of its B as matrices of bytes, at most 16 x 32 and 8 x 32, and a lane's share of them: element i
// of a lane's fragment, counted through its registers from the lowest byte, by the formulas of PTX's manual (mma.m8n8k16,
// mma.m16n8k32 with .s8).
signed char matrix_a[16][32], columns_b[8][32];

template <unsigned int rows, unsigned int depth>
void mma_s8(unsigned int *d, const unsigned int *a, const unsigned int *b) {
    if (lanes != 32) fail("mma: the block is not one warp");
    const unsigned int lane = threadIdx.x, group = lane / 4, place = lane % 4;
    const unsigned int bytes_a = rows * depth / 32, bytes_b = depth * 8 / 32, outputs = rows * 8 / 32;
    for (unsigned int i = 0; i < bytes_a; i++) {
        const unsigned int row = i / 4 % 2 == 0 ? group : group + 8;
        matrix_a[row][place * 4 + i % 4 + (i < 8 ? 0 : 16)] = static_cast<signed char>(a[i / 4] >> (i % 4 * 8));
    }
    for (unsigned int i = 0; i < bytes_b; i++)
        columns_b[group][place * 4 + i % 4 + (i < 4 ? 0 : 16)] = static_cast<signed char>(b[i / 4] >> (i % 4 * 8));
    barrier(-1);
    for (unsigned int i = 0; i < outputs; i++) {
        const signed char *row = matrix_a[i < 2 ? group : group + 8], *column = columns_b[place * 2 + i % 2];
        int sum = 0;
        for (unsigned int k = 0; k < depth; k++) sum += row[k] * column[k];
        d[i] += static_cast<unsigned int>(sum);
    }
    barrier(-2);
}

void mma_m8n8k16_s8(unsigned int *d, const unsigned int *a, const unsigned int *b) { mma_s8<8, 16>(d, a, b); }
void mma_m16n8k32_s8(unsigned int *d, const unsigned int *a, const unsigned int *b) { mma_s8<16, 32>(d, a, b); }

void fiber_main() {
#ifdef ADDRESS_SANITIZER
    const void *bottom;
    std::size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (outside.stack == nullptr) {  // the first fiber learns where it came from
        outside.stack = static_cast<char *>(const_cast<void *>(bottom));
        outside.size = size;
    }
#endif
    for (;;) {
        while (next_lane < lanes) {
            const unsigned int lane = reverse ? lanes - 1 - next_lane : next_lane;
            next_lane++;
            const unsigned int row = lane / blockDim.x;
            threadIdx = current->thread = {lane % blockDim.x, row % blockDim.y, row / blockDim.y};
            entry->call(arguments);
        }
        go(next());
    }
}

// Zeros would hide a read of what no lane has written; the redzones between arrays are overwritten too, unread.
UNCHECKED void poison_shared(unsigned int pattern) {
    auto *end = reinterpret_cast<volatile unsigned int *>(samebits_shared_end);
    for (auto *p = reinterpret_cast<volatile unsigned int *>(samebits_shared_begin); p < end; p++) *p = pattern;
}

void run_block(unsigned int block, unsigned int poison) {
    const unsigned int plane = block / gridDim.x;
    blockIdx = {block % gridDim.x, plane % gridDim.y, plane / gridDim.y};
    poison_shared(poison);
    next_lane = used = ready_count = ready_next = waiting_count = 0;
    diverged = false;
    go(next());
    if (diverged && !divergence_told) {
        divergence_told = true;
        std::fprintf(stderr, "barrier divergence: not all lanes of block (%u, %u, %u) of %s came to the same barrier\n",
                     blockIdx.x, blockIdx.y, blockIdx.z, entry->name);
    }
}

}  // namespace samebits

namespace samebits {

constexpr std::size_t LINE = 8192;
constexpr unsigned int HEAD = 13, MAX_ARGUMENTS = 32, MAX_JOBS = 256;  // HEAD: words of a request before the first OFFSET

// One part of a dispatch, in a process of its own.
[[noreturn]] void work(const std::vector<const char *> &words, unsigned int job, unsigned int jobs) {
    const std::string log = words[2] + std::to_string(job);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(2);
    auto number = [&](std::size_t i) { return std::strtoull(words[i], nullptr, 10); };
    auto small = [&](std::size_t i) { return static_cast<unsigned int>(number(i)); };
    const std::size_t length = number(1);
    const int file = open(words[0], O_RDWR | O_CLOEXEC);
    auto *memory = static_cast<char *>(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (memory == MAP_FAILED) fail("cannot map the buffers");

    const unsigned int count = static_cast<unsigned int>(words.size() - HEAD) / 2;
    for (entry = samebits_entries; entry->name != nullptr && std::strcmp(entry->name, words[4]) != 0;) entry++;
    if (entry->name == nullptr || entry->arguments != count) fail("no such entry point with as many arguments");
#ifdef ADDRESS_SANITIZER
    __asan_poison_memory_region(memory, length);
#endif
    for (unsigned int i = 0; i < count; i++) {
        arguments[i].address = memory + number(HEAD + 2 * i);
#ifdef ADDRESS_SANITIZER
        __asan_unpoison_memory_region(arguments[i].address, number(HEAD + 1 + 2 * i));
#endif
    }

    gridDim = {small(5), small(6), small(7)};
    blockDim = {small(8), small(9), small(10)};
    lanes = blockDim.x * blockDim.y * blockDim.z;
    if (lanes == 0 || lanes > MAX_LANES) fail("a block has 1 to 1024 lanes");
    reverse = number(11) != 0;
    const std::size_t blocks = std::size_t{gridDim.x} * gridDim.y * gridDim.z;
    const auto first = static_cast<unsigned int>(blocks * job / jobs);
    const auto last = static_cast<unsigned int>(blocks * (job + 1) / jobs);
    for (unsigned int i = 0; i < last - first; i++) run_block(reverse ? last - 1 - i : first + i, small(12));
    std::fflush(nullptr);
    _exit(0);
}

void serve(char *line) {
    std::vector<const char *> words;
    for (char *word = std::strtok(line, " \n"); word != nullptr; word = std::strtok(nullptr, " \n")) words.push_back(word);
    if (words.size() < HEAD || words.size() > HEAD + 2 * MAX_ARGUMENTS || (words.size() - HEAD) % 2 != 0) fail("usage");
    const auto jobs = static_cast<unsigned int>(std::strtoul(words[3], nullptr, 10));
    if (jobs > MAX_JOBS) fail("too many jobs");
    pid_t children[MAX_JOBS];
    for (unsigned int job = 0; job < jobs; job++) {
        children[job] = fork();
        if (children[job] == 0) work(words, job, jobs);
        if (children[job] < 0) fail("no process for a job");
    }
    for (unsigned int job = 0; job < jobs; job++) {
        int status = 0;
        while (waitpid(children[job], &status, 0) < 0 && errno == EINTR) {
        }
        std::printf("%d ", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace samebits

int main() {
    static char line[samebits::LINE];
    while (std::fgets(line, sizeof line, stdin) != nullptr) samebits::serve(line);
    return 0;
}

#include "ops/testing/emulator/fiber.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "platform/mutex.h"

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WEFT_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_FIBER_TSAN 1
#endif
#endif
#ifdef WEFT_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WEFT_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Where the registers are known, they are saved by a few instructions; elsewhere by the system,
// which takes two calls into the kernel. Not on a processor's shadow stack.
#if defined(__x86_64__) && !defined(__CET__)
#define WEFT_FIBER_X86 1
#else
#include <ucontext.h>
#endif

#ifdef WEFT_FIBER_X86
// WeftSwitchStacks(save, load): keeps the registers that a call preserves on this stack, stores its
// pointer in *save, and goes on with the stack `load`, which another call left. A new stack begins
// in WeftBeginStack, which calls the function in r13 with r12.
asm(R"(
.text
.type WeftSwitchStacks, @function
WeftSwitchStacks:
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
  ret
.size WeftSwitchStacks, .-WeftSwitchStacks
.type WeftBeginStack, @function
WeftBeginStack:
  movq %r12, %rdi
  callq *%r13
  ud2
.size WeftBeginStack, .-WeftBeginStack
)");
extern "C" void WeftSwitchStacks(void** save, void* load);
extern "C" void WeftBeginStack();
#endif

namespace weft::testing {
namespace {

constexpr size_t kStackPage = 4096;
constexpr size_t kStackBytes = 128 << 10;  // only touched pages take memory

[[noreturn]] void FailFiber(const char* what) {
  std::fprintf(stderr, "fiber: %s: %s\n", what, std::strerror(errno));
  std::abort();
}

}  // namespace

struct Fiber::Switching {
  explicit Switching(Fiber& fiber) : fiber(fiber) {
    void* const memory = mmap(nullptr, kStackPage + kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) FailFiber("cannot map a stack");
    // The lowest page: a stack that grows too large ends the process.
    if (mprotect(memory, kStackPage, PROT_NONE) != 0) FailFiber("cannot protect a stack");
    stack = static_cast<char*>(memory) + kStackPage;
  }
  ~Switching() {
#ifdef WEFT_FIBER_TSAN
    if (own_thread != nullptr) __tsan_destroy_fiber(own_thread);
#endif
    munmap(stack - kStackPage, kStackPage + kStackBytes);
  }

  void Prepare() {
#ifdef WEFT_FIBER_ASAN
    ASAN_UNPOISON_MEMORY_REGION(stack, kStackBytes);
#endif
#ifdef WEFT_FIBER_TSAN
    // A new one takes long; an old one has a frame more for each function that it ran.
    if (!was_left_by_end || ++uses % kUsesOfTsanFiber == 0) {
      if (own_thread != nullptr) __tsan_destroy_fiber(own_thread);
      own_thread = __tsan_create_fiber(0);
    }
    was_left_by_end = false;
#endif
#ifdef WEFT_FIBER_X86
    // What WeftSwitchStacks pops: r15, r14, r13, r12, rbx, rbp and the address to return to.
    void** const top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
    void** const saved = top - 7;
    std::memset(saved, 0, 7 * sizeof(void*));
    saved[2] = reinterpret_cast<void*>(&Switching::Main);
    saved[3] = this;
    saved[6] = reinterpret_cast<void*>(&WeftBeginStack);
    own = saved;
#else
    getcontext(&own);
    own.uc_stack.ss_sp = stack;
    own.uc_stack.ss_size = kStackBytes;
    own.uc_link = nullptr;
    const auto address = reinterpret_cast<uintptr_t>(this);
    makecontext(&own, reinterpret_cast<void (*)()>(&Switching::MainOfHalves), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
#endif
  }

  static void Main(void* argument) {
    Switching& self = *static_cast<Switching*>(argument);
#ifdef WEFT_FIBER_ASAN
    __sanitizer_finish_switch_fiber(self.fake_stack, &self.resumer_stack, &self.resumer_bytes);
#endif
    self.fiber.entry_(self.fiber.argument_);
    self.fiber.ended_ = true;
#ifdef WEFT_FIBER_TSAN
    self.was_left_by_end = true;
#endif
    self.Leave();
    std::abort();
  }
#ifndef WEFT_FIBER_X86
  static void MainOfHalves(unsigned high, unsigned low) {
    Main(reinterpret_cast<void*>(uintptr_t{high} << 32 | low));
  }
#endif

  void Enter() {
#ifdef WEFT_FIBER_ASAN
    void* resumer_fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&resumer_fake_stack, stack, kStackBytes);
#endif
#ifdef WEFT_FIBER_TSAN
    resumer_thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(own_thread, 0);
#endif
    Swap(resumer, own);
#ifdef WEFT_FIBER_ASAN
    __sanitizer_finish_switch_fiber(resumer_fake_stack, nullptr, nullptr);
#endif
  }

  void Leave() {
#ifdef WEFT_FIBER_ASAN
    __sanitizer_start_switch_fiber(&fake_stack, resumer_stack, resumer_bytes);
#endif
#ifdef WEFT_FIBER_TSAN
    __tsan_switch_to_fiber(resumer_thread, 0);
#endif
    Swap(own, resumer);
#ifdef WEFT_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &resumer_stack, &resumer_bytes);
#endif
  }

#ifdef WEFT_FIBER_X86
  using Registers = void*;
  static void Swap(Registers& save, Registers& load) { WeftSwitchStacks(&save, load); }
#else
  using Registers = ucontext_t;
  static void Swap(Registers& save, Registers& load) { swapcontext(&save, &load); }
#endif

  Fiber& fiber;
  char* stack = nullptr;
  Registers own = {};
  Registers resumer = {};
#ifdef WEFT_FIBER_ASAN
  void* fake_stack = nullptr;  // kept from function to function: a new one takes long
  const void* resumer_stack = nullptr;
  size_t resumer_bytes = 0;
#endif
#ifdef WEFT_FIBER_TSAN
  static constexpr int kUsesOfTsanFiber = 1000;
  bool was_left_by_end = false;
  int uses = 0;
  void* own_thread = nullptr;
  void* resumer_thread = nullptr;
#endif
};

Fiber::Fiber() : switching_(std::make_unique<Switching>(*this)) {}
Fiber::~Fiber() = default;

void Fiber::Begin(Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  ended_ = false;
  switching_->Prepare();
}

void Fiber::Resume() { switching_->Enter(); }

void Fiber::Suspend() { switching_->Leave(); }

namespace {

struct FiberPool {
  Mutex mutex;
  std::vector<std::unique_ptr<Fiber>> fibers ABSL_GUARDED_BY(mutex);
};

FiberPool& Pool() {
  static FiberPool* const pool = new FiberPool;
  return *pool;
}

}  // namespace

std::unique_ptr<Fiber> TakeFiber() {
  {
    FiberPool& pool = Pool();
    MutexLock lock(pool.mutex);
    if (!pool.fibers.empty()) {
      std::unique_ptr<Fiber> fiber = std::move(pool.fibers.back());
      pool.fibers.pop_back();
      return fiber;
    }
  }
  return std::make_unique<Fiber>();
}

void GiveFiber(std::unique_ptr<Fiber> fiber) {
  FiberPool& pool = Pool();
  MutexLock lock(pool.mutex);
  pool.fibers.push_back(std::move(fiber));
}

}  // namespace weft::testing

// Fiber: a function with a stack of its own, which stops in the middle and goes on later.
#ifndef WEFT_OPS_TESTING_EMULATOR_FIBER_H_
#define WEFT_OPS_TESTING_EMULATOR_FIBER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::testing {

// One stack, used for one function after the other. AddressSanitizer and ThreadSanitizer know of
// the switches. Used by one thread at a time; it may be resumed by another one than before.
class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume calls `entry`. What ran before has ended, or is given up where it stands: its
  // destructors do not run.
  void Begin(Entry entry, void* argument);
  // Runs it until it suspends itself or ends. Not from inside of a fiber.
  void Resume();
  // From inside: goes on where Resume was called.
  void Suspend();
  // Its function has returned.
  bool ended() const { return ended_; }

  // The machine's registers and what the sanitizers keep of a stack; fiber.cc alone uses it.
  struct Switching;

 private:
  friend struct Switching;

  const std::unique_ptr<Switching> switching_;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
};

// A fiber of those that were given back, or a new one. Any thread.
std::unique_ptr<Fiber> TakeFiber();
void GiveFiber(std::unique_ptr<Fiber> fiber);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_FIBER_H_

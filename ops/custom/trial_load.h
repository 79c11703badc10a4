// Loads a shared library where it can do no harm, before this process does.
#ifndef WEFT_OPS_CUSTOM_TRIAL_LOAD_H_
#define WEFT_OPS_CUSTOM_TRIAL_LOAD_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weft {

// Runs `load` in a copy of this process, and gives what it returns; its standard output and error
// go nowhere. Code that runs while a library is loaded (constructors of its global objects) can
// throw, crash, loop, or end the process, and a library that was cut off ends whoever reads it:
// each is InvalidArgument saying what happened, and leaves this process as it is. One that takes
// longer than `patience` is ended.
//
// The copy is made by fork: it has one thread and does nothing but `load`, which must use neither
// OpenMP nor gRPC (they do not survive it). Call it before this process has other threads that load
// libraries or hold locks that `load` takes.
absl::Status TryApart(const std::function<absl::Status()>& load, absl::Duration patience);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_TRIAL_LOAD_H_

// IsolatedLibrary: a library of custom ops whose code runs in a process of its own.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_ISOLATED_LIBRARY_H_
#define WEFT_OPS_CUSTOM_ISOLATION_ISOLATED_LIBRARY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ops/custom/isolation/helper_messages.h"
#include "ops/custom/isolation/helper_process.h"
#include "ops/custom/isolation/shared_pages.h"
#include "ops/custom_op.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"

namespace weft {

struct IsolationOptions {
  // How long one call of a function of the library may take; zero: as long as it wants.
  absl::Duration op_timeout = absl::Seconds(60);
  // How long the start of a helper may take, which loads the library.
  absl::Duration load_timeout = absl::Seconds(10);
  // The program that serves as a helper (op_helper.h); empty: the one of this process.
  std::string program = {};
};

// A library with the helper process that runs it, and the memory that both see. A helper that fails
// is ended, and the next call starts another one with the same bytes of the library. Thread-safe:
// one call runs at a time, others wait.
class IsolatedLibrary {
 public:
  // `name` is for messages; `image` holds the library.
  IsolatedLibrary(std::string name, FileDescriptor image, IsolationOptions options);

  // Starts the first helper, and says what the library declares (library_description.h).
  // InvalidArgument for one that does not fit, or ends or delays its helper while it is loaded.
  absl::StatusOr<std::string> Describe();

  // Calls a function of the op in the helper; what it asks and does goes to `call`. `flops` gets
  // what kFlops returns. Errors name library, node and function: the function has ended the helper
  // or has not answered in time. What the function itself fails with is in `call`.
  absl::Status Call(LibraryFunction function, uint32_t op, const WeftHost& host, WeftCall& call,
                    double* flops);

  // What an operand of so many bytes takes in the shared memory.
  static size_t PlaceBytes(int64_t bytes);
  // For a kernel whose operands take so many bytes in the shared memory. Returns by how much that
  // grows the largest need of the kernels there are: the sum over them is what is kept.
  size_t AddKernel(size_t bytes);
  void RemoveKernel();

  // The process id of the helper; 0: none runs. For tests.
  pid_t helper();

 private:
  // A call, with the lock: of any thread, or of the one whose call this is part of.
  absl::Status RunCall(LibraryFunction function, uint32_t op, const WeftHost& host, WeftCall& call,
                       double* flops) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What becomes of one call.
  absl::Status Exchange(CallMessage& message, const WeftHost& host, WeftCall& call, double* flops)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartHelper() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> ReceiveDescription() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the helper, which has failed so, and says what it did "in Compute" or "while ...".
  std::string EndHelper(const absl::Status& failure, absl::Duration timeout,
                        const std::string& where) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Memory for so many bytes, which the helper knows.
  absl::Status Reserve(size_t bytes, MonotonicDeadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ShareOperands(CallMessage& message, const WeftHost& host, const WeftCall& call,
                             MonotonicDeadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> ShareValue(const void* data, int64_t bytes, MonotonicDeadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeOutputs(const CallMessage& message, const WeftHost& host, const WeftCall& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const FileDescriptor image_;
  const IsolationOptions options_;

  // Whose call runs: what a function asks for may need the library once more (a gradient adds a
  // node, whose shape function is the library's).
  std::atomic<std::thread::id> caller_{};

  Mutex mutex_;
  int depth_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that run, each within the one before
  std::unique_ptr<HelperProcess> helper_ ABSL_GUARDED_BY(mutex_);  // null: none runs
  std::string thrown_ ABSL_GUARDED_BY(mutex_);  // the exception that ends the helper
  std::string description_bytes_ ABSL_GUARDED_BY(mutex_);
  SharedPages pages_ ABSL_GUARDED_BY(mutex_);
  bool helper_has_pages_ ABSL_GUARDED_BY(mutex_) = false;
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of them, by the running call

  Mutex kernels_mutex_;
  size_t largest_kernel_ ABSL_GUARDED_BY(kernels_mutex_) = 0;  // bytes
  int kernels_ ABSL_GUARDED_BY(kernels_mutex_) = 0;
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_ISOLATED_LIBRARY_H_

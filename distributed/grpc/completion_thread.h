// The thread that takes the completions of a process's data streams.
#ifndef WEFT_DISTRIBUTED_GRPC_COMPLETION_THREAD_H_
#define WEFT_DISTRIBUTED_GRPC_COMPLETION_THREAD_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "distributed/fifo.h"
#include "platform/mutex.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace weft {

// What a completion queue calls back; its address, as a CompletionHandler*, is the tag. What was
// written before Tag() is seen by Complete: gRPC sees to that, and ThreadSanitizer, which cannot
// look into gRPC, is told.
class CompletionHandler {
 public:
  virtual void Complete(bool ok) = 0;
  void* Tag() {
#ifdef __SANITIZE_THREAD__
    __tsan_release(this);
#endif
    return this;
  }
  static CompletionHandler& Of(void* tag) {
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(tag);
#endif
    return *static_cast<CompletionHandler*>(tag);
  }

 protected:
  ~CompletionHandler() = default;
};

// Calls a member function of its owner.
template <typename Owner>
class MethodHandler final : public CompletionHandler {
 public:
  MethodHandler(Owner& owner, void (Owner::*method)(bool)) : owner_(owner), method_(method) {}
  void Complete(bool ok) override { (owner_.*method_)(ok); }

 private:
  Owner& owner_;
  void (Owner::*const method_)(bool);
};

// Owns the queue of a server, which serves this process's outgoing streams too, and the one thread
// that polls it: handlers never run at the same time. Before it is destroyed, the server has been
// shut down and all streams have ended.
class CompletionThread {
 public:
  explicit CompletionThread(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Once, after the server was started.
  void Start();
  grpc::ServerCompletionQueue& queue() { return *queue_; }
  // Runs `errand` in the thread, between two handlers; errands keep their order.
  void Post(std::function<void()> errand);
  // Posts and waits. Not from the thread itself.
  void RunAndWait(const std::function<void()>& errand);

 private:
  class Wake;
  void Loop();
  void RunErrands();

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::thread thread_;
  Mutex mutex_;
  Fifo<std::function<void()>> errands_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_COMPLETION_THREAD_H_

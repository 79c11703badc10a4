#include "distributed/grpc/completion_thread.h"

#include <grpcpp/alarm.h>

#include <utility>

namespace weft {

// One ring of the bell, on the heap until it was heard.
class CompletionThread::Wake final : public CompletionHandler {
 public:
  static void Ring(CompletionThread& thread) {
    Wake* const wake = new Wake(thread);
    wake->alarm_.Set(&thread.queue(), gpr_now(GPR_CLOCK_MONOTONIC), wake->Tag());
  }
  void Complete(bool) override {
    const std::unique_ptr<Wake> self(this);
    thread_.RunErrands();
  }

 private:
  friend std::default_delete<Wake>;
  explicit Wake(CompletionThread& thread) : thread_(thread) {}
  ~Wake() = default;

  CompletionThread& thread_;
  grpc::Alarm alarm_;
};

CompletionThread::CompletionThread(std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)) {}

CompletionThread::~CompletionThread() {
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Loop();
  }
}

void CompletionThread::Start() { thread_ = std::thread(&CompletionThread::Loop, this); }

void CompletionThread::Loop() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) CompletionHandler::Of(tag).Complete(ok);
}

void CompletionThread::Post(std::function<void()> errand) {
  {
    MutexLock lock(mutex_);
    errands_.Push(std::move(errand));
  }
  Wake::Ring(*this);
}

void CompletionThread::RunErrands() {
  while (true) {
    std::function<void()> errand;
    {
      MutexLock lock(mutex_);
      if (errands_.empty()) return;
      errand = errands_.Pop();
    }
    errand();
  }
}

void CompletionThread::RunAndWait(const std::function<void()>& errand) {
  Mutex mutex;
  CondVar changed;
  bool done = false;
  Post([&] {
    errand();
    MutexLock lock(mutex);
    done = true;
    changed.NotifyAll();
  });
  MutexLock lock(mutex);
  while (!done) changed.Wait(mutex);
}

}  // namespace weft

#include "distributed/grpc/worker_lease.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "platform/log.h"

namespace weft {
namespace {

// How long a worker may take to let its coordinator go.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(1);

}  // namespace

grpc::Status WorkerLease::Open(rpc::Control::Stub& stub, const LossDetection& detection) {
  detection_ = detection;
  stream_ = stub.Attend(&context_);
  rpc::AttendReply hello;
  if (!stream_->Read(&hello)) return stream_->Finish();
  process_id_ = hello.process_id();
  version_ = hello.version();
  number_ = hello.lease();
  epoch_ = hello.epoch();
  listener_ = std::thread([this] { Listen(); });
  keeper_ = std::thread([this] { Keep(); });
  return grpc::Status::OK;
}

void WorkerLease::Listen() {
  rpc::AttendReply reply;
  while (stream_->Read(&reply)) {
    MutexLock lock(mutex_);
    unanswered_ = 0;
    heard_ = absl::Now();
    late_ = absl::ZeroDuration();
    leaving_ = reply.leaving();
  }
  MutexLock lock(mutex_);
  ended_ = true;
  if (!closing_) LoseLocked("its connection has ended");
  changed_.NotifyAll();
}

void WorkerLease::Keep() {
  while (true) {
    {
      MutexLock lock(mutex_);
      const absl::Time now = absl::Now();
      if (beat_ != absl::InfiniteFuture()) {
        longest_pause_ = std::max(longest_pause_, now - beat_);
        late_ += std::max(absl::ZeroDuration(), now - beat_ - detection_.beat);
      }
      beat_ = now;
      heard_ = std::min(heard_, now);  // the first question: it has answered Attend
      if (unanswered_ >= detection_.patience) LoseLocked(Silence(now));
      if (!why_lost_.empty()) return;
      ++unanswered_;
      if (closing_) break;
    }
    if (!stream_->Write(rpc::AttendRequest())) return;
    MutexLock lock(mutex_);
    const absl::Time next = beat_ + detection_.beat;
    while (!closing_ && changed_.WaitUntil(mutex_, next)) {
    }
    if (closing_) break;
  }
  rpc::AttendRequest goodbye;
  goodbye.set_goodbye(true);
  if (stream_->Write(goodbye)) stream_->WritesDone();
}

std::string WorkerLease::Silence(absl::Time now) {
  const std::string silence = absl::StrFormat("%.2f s", absl::ToDoubleSeconds(now - heard_));
  Log(LogLevel::kWarning, "worker process ", process_id_, " has not answered for ", silence,
      "; meanwhile this process was late by ",
      absl::StrFormat("%.2f s", absl::ToDoubleSeconds(late_)));
  return absl::StrCat("it has not answered for ", silence);
}

void WorkerLease::LoseLocked(const std::string& why) {
  if (!why_lost_.empty()) return;
  why_lost_ = why;
  for (grpc::ClientContext* const call : calls_) call->TryCancel();
  context_.TryCancel();
  changed_.NotifyAll();
}

std::string WorkerLease::WhyLost() {
  MutexLock lock(mutex_);
  return why_lost_;
}

bool WorkerLease::is_leaving() {
  MutexLock lock(mutex_);
  return leaving_;
}

absl::Duration WorkerLease::LongestPause() {
  MutexLock lock(mutex_);
  return std::max(longest_pause_, absl::Now() - beat_);
}

bool WorkerLease::AddCall(grpc::ClientContext& call) {
  MutexLock lock(mutex_);
  if (!why_lost_.empty()) return false;
  calls_.insert(&call);
  return true;
}

void WorkerLease::RemoveCall(const grpc::ClientContext& call) {
  MutexLock lock(mutex_);
  calls_.erase(const_cast<grpc::ClientContext*>(&call));
}

void WorkerLease::NoteBroken(const std::string& why) {
  MutexLock lock(mutex_);
  LoseLocked(why);
}

WorkerLease::~WorkerLease() {
  if (!listener_.joinable()) return;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
    // A worker that has answered is free: the next coordinator may be a trial of the same sweep.
    const absl::Time deadline = absl::Now() + kLeaveTimeout;
    while (!ended_ && changed_.WaitUntil(mutex_, deadline)) {
    }
  }
  context_.TryCancel();
  keeper_.join();
  listener_.join();
  stream_->Finish();
}

}  // namespace weft

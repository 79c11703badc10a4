#include "distributed/grpc/incoming_streams.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/credentials/call_roles.h"
#include "distributed/grpc/frame.h"
#include "distributed/grpc/outbox.h"
#include "distributed/grpc/status_codec.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// False when the call's metadata has no such number.
template <typename Number>
bool ReadMetadata(const grpc::ServerContext& context, const char* key, Number& number) {
  const auto found = context.client_metadata().find(key);
  return found != context.client_metadata().end() &&
         absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &number);
}

// The header at the begin of the slices.
absl::StatusOr<Frame> ReadHeader(const std::vector<grpc::Slice>& slices) {
  FrameHeaderBytes bytes;
  size_t filled = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t take = std::min(slice.size(), bytes.size() - filled);
    std::memcpy(bytes.data() + filled, slice.begin(), take);
    filled += take;
    if (filled == bytes.size()) return DecodeFrameHeader(bytes);
  }
  return absl::DataLossError("message is shorter than its header");
}

size_t TotalSize(const std::vector<grpc::Slice>& slices) {
  size_t total = 0;
  for (const grpc::Slice& slice : slices) total += slice.size();
  return total;
}

// Copies what follows the header.
void CopyPart(const std::vector<grpc::Slice>& slices, std::byte* target) {
  size_t skip = kFrameHeaderBytes;
  for (const grpc::Slice& slice : slices) {
    if (skip >= slice.size()) {
      skip -= slice.size();
      continue;
    }
    std::memcpy(target, slice.begin() + skip, slice.size() - skip);
    target += slice.size() - skip;
    skip = 0;
  }
}

std::string TextAfterHeader(const std::vector<grpc::Slice>& slices) {
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text.substr(std::min(text.size(), kFrameHeaderBytes));
}

}  // namespace

// One stream, from the wait for it to its end. All methods but ScheduleResume run in the completion
// thread.
class IncomingStreams::Call final : public InboxSource {
 public:
  explicit Call(IncomingStreams& owner) : owner_(owner) {}

  void Request() {
    owner_.service_.RequestCall(&context_, &stream_, &owner_.thread_.queue(),
                                &owner_.thread_.queue(), accepted_.Tag());
  }
  void ScheduleResume() override {
    ++resumes_;
    owner_.thread_.Post([this] {
      --resumes_;
      Resume();
      Release();
    });
  }
  void EndIfOf(IncomingJob& job, const absl::Status& status) {
    if (job_ != &job) return;
    Leave();
    End(status);
  }

 private:
  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnAnswered(bool ok);
  void OnFinished(bool) {
    finished_ = true;
    Release();
  }
  absl::Status Accept();
  void Read() {
    reading_ = true;
    stream_.Read(&message_, read_.Tag());
  }
  // Tells the sender that a frame has come.
  void Answer();
  void Offer();
  void Resume() {
    if (holding_ && inbox_ != nullptr) Offer();
  }
  void StreamBroke();
  void TakeLastFrame(const Frame& frame);
  void Leave() {
    if (inbox_ != nullptr) inbox_->Detach();
    inbox_ = nullptr;
    job_ = nullptr;
  }
  void End(const absl::Status& status) {
    if (ending_) return;
    ending_ = true;
    end_ = status;
    if (!answering_) Finish();
  }
  void Finish() { stream_.Finish(ToGrpc(end_), finished_tag_.Tag()); }
  // Destroys this, if nothing refers to it any more.
  void Release();

  IncomingStreams& owner_;
  MethodHandler<Call> accepted_{*this, &Call::OnAccepted};
  MethodHandler<Call> read_{*this, &Call::OnRead};
  MethodHandler<Call> answered_{*this, &Call::OnAnswered};
  MethodHandler<Call> finished_tag_{*this, &Call::OnFinished};
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer message_;
  std::vector<grpc::Slice> slices_;
  Frame frame_;
  IncomingJob* job_ = nullptr;
  Inbox* inbox_ = nullptr;
  RankId peer_;
  bool reading_ = false;
  bool answering_ = false;  // a write is under way
  bool owes_answer_ = false;
  bool holding_ = false;
  bool closed_ = false;
  bool ending_ = false;
  absl::Status end_;  // where it is ending
  bool finished_ = false;
  std::atomic<int> resumes_{0};
};

void IncomingStreams::Call::Release() {
  if (!finished_ || reading_ || resumes_.load() > 0) return;
  IncomingStreams& owner = owner_;
  MutexLock lock(owner.mutex_);
  owner.calls_.erase(this);  // destroys it
  owner.changed_.NotifyAll();
}

void IncomingStreams::Call::OnAccepted(bool ok) {
  if (!ok) {  // the server shuts down
    finished_ = true;
    owner_.accepting_ = false;
    return Release();
  }
  owner_.AcceptNext();
  const absl::Status status = Accept();
  if (!status.ok()) return End(status);
  Read();
}

absl::Status IncomingStreams::Call::Accept() {
  // Strangers are not told which job this is.
  if (const absl::Status known = CheckToken(context_, owner_.token_); !known.ok()) return known;
  if (owner_.is_secured_) {
    WEFT_RETURN_IF_ERROR(CheckRole(*context_.auth_context(), WorkerCall::kData));
  }
  if (owner_.on_known_ != nullptr) owner_.on_known_(context_.peer());
  if (context_.method() != kDataMethod) {
    return absl::UnimplementedError(absl::StrCat("no method ", context_.method()));
  }
  uint64_t job_id = 0;
  int rank = 0;
  if (!ReadMetadata(context_, kJobIdKey, job_id) || !ReadMetadata(context_, kRankKey, rank)) {
    return absl::InvalidArgumentError("data stream without job_id and rank");
  }
  IncomingJob* const job = owner_.job_;
  if (job == nullptr || job->job_id() != job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("stale peer: the stream is of job ", job_id, ", this worker is in ",
                     job == nullptr ? std::string("none") : absl::StrCat("job ", job->job_id())));
  }
  Inbox* const inbox = job->InboxOf(RankId(rank));
  if (inbox == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " is no peer of rank ", job->rank().value, " in this job"));
  }
  if (owner_.is_secured_) {
    WEFT_RETURN_IF_ERROR(
        CheckPeerHost(*context_.auth_context(), rank, HostOf(job->AddressOf(RankId(rank)))));
  }
  const absl::Status attached = inbox->Attach(*this);
  if (!attached.ok()) return attached;
  job_ = job;
  inbox_ = inbox;
  peer_ = RankId(rank);
  return absl::OkStatus();
}

void IncomingStreams::Call::OnRead(bool ok) {
  reading_ = false;
  if (!ok) {
    StreamBroke();
    End(absl::OkStatus());
    return Release();
  }
  if (inbox_ == nullptr) return Release();
  if (!message_.Dump(&slices_).ok()) slices_.clear();
  const absl::StatusOr<Frame> frame = ReadHeader(slices_);
  if (!frame.ok()) {
    job_->PeerLost(peer_, Annotate(frame.status(), "sent a broken message"));
    Leave();
    return End(frame.status());
  }
  frame_ = *frame;
  if (frame_.asks) Answer();
  if (frame_.kind == Frame::Kind::kData) return Offer();
  TakeLastFrame(frame_);
  if (!ending_) Read();
}

void IncomingStreams::Call::Answer() {
  owes_answer_ = true;
  if (answering_ || ending_) return;
  owes_answer_ = false;
  answering_ = true;
  constexpr char kCome = 1;
  const grpc::Slice slice(&kCome, sizeof(kCome));
  stream_.Write(grpc::ByteBuffer(&slice, 1), answered_.Tag());
}

void IncomingStreams::Call::OnAnswered(bool ok) {
  answering_ = false;
  if (ending_) return Finish();
  // Where it was not written, the stream is ending: the next read says so.
  if (ok && owes_answer_) Answer();
}

void IncomingStreams::Call::Offer() {
  holding_ = false;
  // What is shorter than a header has none, and does not come here.
  const uint64_t part_bytes = TotalSize(slices_) - kFrameHeaderBytes;
  const auto copy = [this](std::byte* target) { CopyPart(slices_, target); };
  switch (inbox_->Take(frame_, part_bytes, copy)) {
    case Inbox::Next::kRead:
      return Read();
    case Inbox::Next::kHold:
      holding_ = true;
      return;
    case Inbox::Next::kEnd:
      Leave();
      return End(absl::AbortedError("the receiver's job has ended"));
  }
}

void IncomingStreams::Call::TakeLastFrame(const Frame& frame) {
  closed_ = true;
  if (frame.kind == Frame::Kind::kAbort) job_->PeerAborted(peer_, TextAfterHeader(slices_));
}

void IncomingStreams::Call::StreamBroke() {
  if (job_ == nullptr) return;
  IncomingJob* const job = job_;
  const bool closed = closed_;
  Leave();
  job->PeerLost(peer_, absl::UnavailableError(
                           closed ? "has left the job"
                                  : "is lost: its connection broke (did its process end?)"));
}

IncomingStreams::IncomingStreams(CompletionThread& thread, std::string token, bool is_secured)
    : thread_(thread), token_(std::move(token)), is_secured_(is_secured) {}

IncomingStreams::~IncomingStreams() = default;

void IncomingStreams::Start() { AcceptNext(); }

void IncomingStreams::AcceptNext() {
  if (!accepting_) return;
  auto owned = std::make_unique<Call>(*this);
  Call* const call = owned.get();
  {
    MutexLock lock(mutex_);
    calls_[call] = std::move(owned);
  }
  call->Request();
}

void IncomingStreams::AwaitEnd() {
  MutexLock lock(mutex_);
  while (!calls_.empty()) changed_.Wait(mutex_);
}

void IncomingStreams::Open(IncomingJob& job) {
  thread_.RunAndWait([&] { job_ = &job; });
}

void IncomingStreams::EndCalls(IncomingJob& job, const absl::Status& status) {
  std::vector<Call*> calls;
  {
    MutexLock lock(mutex_);
    for (const auto& [call, owned] : calls_) calls.push_back(call);
  }
  for (Call* call : calls) call->EndIfOf(job, status);
}

void IncomingStreams::Close(IncomingJob& job, const absl::Status& status) {
  thread_.RunAndWait([&] {
    if (job_ == &job) job_ = nullptr;
    EndCalls(job, status);
  });
}

void IncomingStreams::ScheduleEnd(IncomingJob& job, const absl::Status& status) {
  thread_.Post([this, &job, status] { EndCalls(job, status); });
}

}  // namespace weft

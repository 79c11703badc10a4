#include "distributed/grpc/outbox.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/credentials/tls_credentials.h"
#include "distributed/grpc/status_codec.h"
#include "platform/checksum.h"
#include "platform/clock.h"

namespace weft {
namespace {

constexpr absl::Duration kCloseTimeout = absl::Seconds(1);

grpc::Slice HeaderSlice(const Frame& frame) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(frame);
  return grpc::Slice(bytes.data(), bytes.size());
}

}  // namespace

void Outbox::Message::Release() {
  if (holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  TransferObserver& done = *observer;
  const absl::Status result = std::exchange(status, absl::OkStatus());
  free.store(true, std::memory_order_release);
  done.Done(result);
}

Outbox::Outbox(CompletionThread& thread, Route route,
               std::function<void(StreamEnd, const absl::Status&)> on_end)
    : thread_(thread), route_(std::move(route)), on_end_(std::move(on_end)) {}

Outbox::~Outbox() { FinishClose(); }

void Outbox::Open() {
  MutexLock lock(mutex_);
  if (failure_.ok()) OpenLocked();
}

void Outbox::OpenLocked() {
  if (state_ != State::kIdle) return;
  state_ = State::kStarting;
  channel_ = NewChannel(route_.address, route_.keys.get());
  stub_ = std::make_unique<grpc::GenericStub>(channel_);
  context_.AddMetadata(kTokenKey, route_.token);
  context_.AddMetadata(kJobIdKey, absl::StrCat(route_.job_id));
  context_.AddMetadata(kRankKey, absl::StrCat(route_.from.value));
  call_ = stub_->PrepareCall(&context_, kDataMethod, &thread_.queue());
  call_->StartCall(started_.Tag());
}

void Outbox::Send(const MessageHeader& header, const void* data, TransferObserver& observer) {
  absl::Status failure;
  {
    MutexLock lock(mutex_);
    failure = failure_;
    if (failure.ok()) {
      Message* const message = NewMessage();
      message->header = header;
      message->data = static_cast<const std::byte*>(data);
      message->observer = &observer;
      queue_.Push(message);
      OpenLocked();
      Pump();
      return;
    }
  }
  observer.Done(failure);
}

Outbox::Message* Outbox::NewMessage() {
  Message* message = nullptr;
  for (const std::unique_ptr<Message>& candidate : messages_) {
    if (candidate->free.load(std::memory_order_acquire)) {
      message = candidate.get();
      break;
    }
  }
  if (message == nullptr) {
    messages_.push_back(std::make_unique<Message>());
    message = messages_.back().get();
  }
  message->free.store(false, std::memory_order_relaxed);
  message->holders.store(1, std::memory_order_relaxed);
  return message;
}

void Outbox::Pump() {
  if (state_ != State::kOpen || writing_ || last_frame_written_) return;
  if (current_ == nullptr && !queue_.empty()) {
    current_ = queue_.Pop();
    offset_ = 0;
  }
  if (current_ != nullptr) {
    if (!awaits_answer_) WritePart();
  } else if (last_frame_.has_value()) {
    WriteLastFrame();
  }
}

void Outbox::WritePart() {
  Message& message = *current_;
  Frame frame;
  frame.header = message.header;
  frame.offset = offset_;
  frame.part_bytes = std::min<uint64_t>(part_size_.bytes(), message.header.bytes - offset_);
  const std::span<const std::byte> part(message.data + offset_, frame.part_bytes);
  frame.header.checksum = Checksum(part);
  offset_ += frame.part_bytes;
  unasked_bytes_ += frame.part_bytes;
  frame.asks = part_size_.wants_answer() && unasked_bytes_ >= part_size_.bytes();
  header_bytes_sent_ += static_cast<int64_t>(kFrameHeaderBytes);
  grpc::Slice slices[2] = {HeaderSlice(frame), grpc::Slice()};
  if (!part.empty()) {
    message.holders.fetch_add(1, std::memory_order_relaxed);
    slices[1] = grpc::Slice(const_cast<std::byte*>(part.data()), part.size(), &Message::ReleasePart,
                            &message);
  }
  writing_ = true;
  write_asks_ = frame.asks;
  write_begin_nanos_ = RealClock().MonotonicNanos();
  if (frame.asks) {
    awaits_answer_ = true;
    asked_bytes_ = std::exchange(unasked_bytes_, 0);
    asked_nanos_ = write_begin_nanos_;
  }
  call_->Write(grpc::ByteBuffer(slices, part.empty() ? 1 : 2), written_.Tag());
  if (offset_ == message.header.bytes) {
    current_ = nullptr;
    message.Release();
  }
}

void Outbox::WriteLastFrame() {
  last_frame_written_ = true;
  Frame frame;
  frame.kind = *last_frame_;
  frame.header.job_id = route_.job_id;
  frame.part_bytes = last_text_.size();
  frame.header.checksum = Checksum(std::as_bytes(std::span(last_text_)));
  grpc::Slice slices[2] = {HeaderSlice(frame), grpc::Slice(last_text_)};
  writing_ = true;
  write_asks_ = false;
  write_begin_nanos_ = RealClock().MonotonicNanos();
  call_->WriteLast(grpc::ByteBuffer(slices, 2), grpc::WriteOptions(), written_.Tag());
}

void Outbox::DropMessages(const absl::Status& status) {
  if (current_ != nullptr) queue_.Push(std::exchange(current_, nullptr));
  while (!queue_.empty()) {
    Message* const message = queue_.Pop();
    message->status = status;
    message->Release();
  }
}

void Outbox::Abort(const absl::Status& status, const std::string& reason) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = status;
  DropMessages(status);
  last_frame_ = Frame::Kind::kAbort;
  last_text_ = reason.substr(0, kLongestErrorText);
  Pump();
}

void Outbox::Fail(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = status;
  DropMessages(status);
}

void Outbox::OnStarted(bool ok) {
  MutexLock lock(mutex_);
  if (!ok) return call_->Finish(&end_, finished_.Tag());
  if (state_ == State::kStarting) state_ = State::kOpen;
  call_->Read(&answer_, answered_.Tag());
  Pump();
}

void Outbox::OnAnswered(bool ok) {
  MutexLock lock(mutex_);
  if (!ok) return call_->Finish(&end_, finished_.Tag());
  if (std::exchange(awaits_answer_, false)) {
    part_size_.Came(asked_bytes_, absl::Nanoseconds(RealClock().MonotonicNanos() - asked_nanos_));
  }
  call_->Read(&answer_, answered_.Tag());
  Pump();
}

void Outbox::OnWritten(bool ok) {
  MutexLock lock(mutex_);
  writing_ = false;
  if (!write_asks_) {
    part_size_.Left(absl::Nanoseconds(RealClock().MonotonicNanos() - write_begin_nanos_));
  }
  // When a write fails, the stream is ending: OnFinished says why.
  if (ok) Pump();
  changed_.NotifyAll();
}

// Whether the program at the other end ends streams with it. Other codes are the connection's own:
// one that was cut before its first byte is Unimplemented to gRPC.
static bool IsOfPeer(absl::StatusCode code) {
  return code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kDataLoss ||
         code == absl::StatusCode::kUnauthenticated;
}

absl::Status Outbox::EndStatus(StreamEnd& end) {
  end = StreamEnd::kLost;
  if (end_.ok()) {
    end = StreamEnd::kClosed;
    return absl::UnavailableError(
        absl::StrCat("rank ", route_.to.value, " (", route_.address, ") has left the job"));
  }
  const absl::Status status = FromGrpc(end_);
  if (absl::IsAborted(status)) {
    end = StreamEnd::kAborted;
    return status;
  }
  if (IsOfPeer(status.code())) return status;
  return absl::UnavailableError(absl::StrCat("rank ", route_.from.value, " lost rank ",
                                             route_.to.value, " (", route_.address,
                                             "): ", WithTlsHint(std::string(status.message()))));
}

void Outbox::OnFinished(bool) {
  StreamEnd end;
  absl::Status status;
  bool tell = false;
  {
    MutexLock lock(mutex_);
    state_ = State::kEnded;
    status = EndStatus(end);
    tell = !closing_ && failure_.ok();
    if (failure_.ok()) failure_ = status;
    DropMessages(status);
  }
  if (tell) on_end_(end, status);
  MutexLock lock(mutex_);
  finished_called_ = true;
  changed_.NotifyAll();
}

int64_t Outbox::header_bytes_sent() const {
  MutexLock lock(mutex_);
  return header_bytes_sent_;
}

void Outbox::StartClose() {
  MutexLock lock(mutex_);
  closing_ = true;
  if (!last_frame_.has_value()) last_frame_ = Frame::Kind::kClose;
  Pump();
}

void Outbox::Cancel() {
  MutexLock lock(mutex_);
  if (call_ != nullptr && state_ != State::kEnded) context_.TryCancel();
}

void Outbox::FinishClose() {
  StartClose();
  const absl::Time deadline = absl::Now() + kCloseTimeout;
  MutexLock lock(mutex_);
  bool cancelled = false;
  while (state_ != State::kIdle && (!finished_called_ || writing_)) {
    if (cancelled) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, deadline)) {
      context_.TryCancel();
      cancelled = true;
    }
  }
  if (state_ == State::kIdle) state_ = State::kEnded;
  finished_called_ = true;
}

}  // namespace weft

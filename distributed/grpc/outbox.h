// Outbox: the outgoing data stream to one peer.
#ifndef WEFT_DISTRIBUTED_GRPC_OUTBOX_H_
#define WEFT_DISTRIBUTED_GRPC_OUTBOX_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "distributed/fifo.h"
#include "distributed/grpc/completion_thread.h"
#include "distributed/grpc/frame.h"
#include "distributed/grpc/part_size.h"
#include "distributed/keys/key_ring.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft {

// Full name of the method that data streams call.
inline constexpr char kDataMethod[] = "/weft.Data/Stream";
// Keys of the metadata that a data stream opens with.
inline constexpr char kJobIdKey[] = "weft-job_id";
inline constexpr char kRankKey[] = "weft-rank";

// Who sends to whom in which job.
struct Route {
  uint64_t job_id = 0;
  RankId from;
  RankId to;
  std::string address;                 // of `to`
  std::string token = {};              // that the peer wants
  std::shared_ptr<KeyRing> keys = {};  // for TLS; null: none
};

// How a stream ended, for the transport.
enum class StreamEnd {
  kClosed,   // the peer is done
  kAborted,  // the peer aborted the job
  kLost,     // anything else
};

// Sends messages in order, one write under way at a time. The stream opens with the first message
// (or Open). Until the connection has proved to be quick (PartSize), some frames ask for an answer,
// and the next one waits for it. Thread-safe; after Close has returned nothing of it is referenced
// any more.
class Outbox {
 public:
  // `on_end` is called once from the completion thread, without locks, when the stream ends before
  // Close. Borrows the thread.
  Outbox(CompletionThread& thread, Route route,
         std::function<void(StreamEnd, const absl::Status&)> on_end);
  ~Outbox();

  void Open();
  void Send(const MessageHeader& header, const void* data, TransferObserver& observer);
  // All messages, now and later, end with `status` (those whose bytes gRPC holds, once it has let
  // go of them). The peer is told `reason`, if there is a stream.
  void Abort(const absl::Status& status, const std::string& reason);
  // Later messages end with `status`.
  void Fail(const absl::Status& status);
  // Says goodbye, after what is queued. Does not wait.
  void StartClose();
  // Ends the stream at once, whatever it does.
  void Cancel();
  // Of the frames of messages.
  int64_t header_bytes_sent() const;
  // Waits until the stream has ended; cancels it when that takes longer than a second.
  void FinishClose();

 private:
  enum class State { kIdle, kStarting, kOpen, kEnded };

  // A message on its way: alive while it is queued or gRPC holds one of its parts.
  struct Message {
    MessageHeader header;
    const std::byte* data = nullptr;
    TransferObserver* observer = nullptr;
    absl::Status status;
    std::atomic<int> holders{0};
    std::atomic<bool> free{true};
    void Release();
    static void ReleasePart(void* message) { static_cast<Message*>(message)->Release(); }
  };

  void OnStarted(bool ok);
  void OnWritten(bool ok);
  // The peer has answered, or the stream has ended.
  void OnAnswered(bool ok);
  void OnFinished(bool ok);

  void OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Message* NewMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next write, if one may start.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WritePart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteLastFrame() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropMessages(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the end of the call means.
  absl::Status EndStatus(StreamEnd& end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CompletionThread& thread_;
  const Route route_;
  const std::function<void(StreamEnd, const absl::Status&)> on_end_;
  MethodHandler<Outbox> started_{*this, &Outbox::OnStarted};
  MethodHandler<Outbox> written_{*this, &Outbox::OnWritten};
  MethodHandler<Outbox> answered_{*this, &Outbox::OnAnswered};
  MethodHandler<Outbox> finished_{*this, &Outbox::OnFinished};

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t header_bytes_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_called_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_frame_written_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  // A frame that ends the stream: reason of an abort, or goodbye.
  std::optional<Frame::Kind> last_frame_ ABSL_GUARDED_BY(mutex_);
  std::string last_text_ ABSL_GUARDED_BY(mutex_);
  Fifo<Message*> queue_ ABSL_GUARDED_BY(mutex_);
  Message* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
  PartSize part_size_ ABSL_GUARDED_BY(mutex_);
  // Of the write under way.
  bool write_asks_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t write_begin_nanos_ ABSL_GUARDED_BY(mutex_) = 0;
  // Since the last frame that asked.
  size_t unasked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the question that the peer has not answered yet.
  bool awaits_answer_ ABSL_GUARDED_BY(mutex_) = false;
  size_t asked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t asked_nanos_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Message>> messages_ ABSL_GUARDED_BY(mutex_);  // reused

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer answer_;  // that it exists is all
  grpc::Status end_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_OUTBOX_H_

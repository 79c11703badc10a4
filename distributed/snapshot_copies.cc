#include "distributed/snapshot_copies.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/collective_schedule.h"
#include "platform/checksum.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// Longer messages would keep those of steps waiting, shorter ones have more headers.
constexpr int64_t kPieceBytes = int64_t{256} << 10;
// So many may be ahead of who takes them.
constexpr int64_t kPiecesAhead = 8;

int64_t PiecesOf(int64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

// The memory of every page is taken here, and not between two steps.
absl::StatusOr<Tensor> TakeMemory(int64_t bytes) {
  WEFT_ASSIGN_OR_RETURN(Tensor image, Tensor::Allocate(DType::kUint8, Shape({bytes})));
  std::memset(image.raw_data(), 0, image.bytes());
  return image;
}

uint64_t ChecksumOfImage(const Tensor& image) {
  return Checksum({static_cast<const std::byte*>(image.raw_data()), image.bytes()});
}

}  // namespace

class SnapshotCopies::Wait final : public TransferObserver {
 public:
  void Start() {
    MutexLock lock(mutex_);
    busy_ = true;
    status_ = absl::OkStatus();
  }
  void Done(const absl::Status& status) override {
    MutexLock lock(mutex_);
    busy_ = false;
    status_ = status;
    changed_.NotifyAll();
  }
  // DeadlineExceeded, without words, if it is still under way at `deadline`.
  absl::Status For(Clock& clock, absl::Time deadline) {
    MutexLock lock(mutex_);
    while (busy_) {
      if (!clock.WaitUntil(changed_, mutex_, deadline) && busy_) {
        return absl::DeadlineExceededError("");
      }
    }
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

SnapshotCopies::SnapshotCopies(SnapshotCopiesOptions options)
    : options_(std::move(options)),
      ranks_(static_cast<int>(options_.replication.keepers.size())),
      sending_(std::make_unique<Wait>()),
      telling_(std::make_unique<Wait>()),
      receiving_(std::make_unique<Wait>()) {}

absl::StatusOr<std::unique_ptr<SnapshotCopies>> SnapshotCopies::Open(
    SnapshotCopiesOptions options) {
  std::unique_ptr<SnapshotCopies> copies(new SnapshotCopies(std::move(options)));
  const Replication& replication = copies->options_.replication;
  const int rank = copies->options_.rank.value;
  if (rank >= copies->ranks_ || replication.bytes.size() != replication.keepers.size()) {
    return absl::InternalError(
        absl::StrCat("worker:", rank, " is to have copies in a job of ", copies->ranks_, " ranks"));
  }
  copies->own_.rank = rank;
  copies->own_.bytes = replication.bytes[static_cast<size_t>(rank)];
  for (int other = 0; other < copies->ranks_; ++other) {
    if (replication.keepers[static_cast<size_t>(other)] != rank) continue;
    Room& room = copies->kept_.emplace_back();
    room.rank = other;
    room.bytes = replication.bytes[static_cast<size_t>(other)];
  }
  CollectiveSpec& spec = copies->spec_;
  spec.name = "snapshot/agreement";
  for (int other = 0; other < copies->ranks_; ++other) spec.group.push_back(RankId(other));
  spec.dtype = DType::kFloat32;
  spec.schedule = RecursiveDoublingAllReduce(copies->ranks_, rank, 2);
  spec.tensors = "the ranks whose copies are whole";
  for (const int64_t elements : spec.schedule.buffer_elements) {
    copies->values_.emplace_back(static_cast<size_t>(elements));
  }
  for (std::vector<float>& values : copies->values_) copies->buffers_.push_back(values.data());
  WEFT_ASSIGN_OR_RETURN(copies->sum_, copies->options_.communicator->OpenCollective(spec));
  return copies;
}

SnapshotCopies::~SnapshotCopies() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  Log(LogLevel::kInfo, "worker:", own_.rank, " has copied its state ", made_, " times; ", skipped_,
      " more were due while a copy travelled");
}

void SnapshotCopies::Add(const Partition& partition) {
  std::map<std::string, VariableShard> all;
  for (VariableShard& shard : shards_) all[shard.name] = std::move(shard);
  for (VariableShard& shard : SnapshotVariables(partition, /*primaries=*/true)) {
    all[shard.name] = std::move(shard);
  }
  shards_.clear();
  for (auto& [name, shard] : all) shards_.push_back(std::move(shard));
  layout_ = LayOutSnapshot(shards_);
}

int64_t SnapshotCopies::bytes() const {
  int64_t bytes = own_.bytes;
  for (const Room& room : kept_) bytes += room.bytes;
  return 2 * bytes;
}

int64_t SnapshotCopies::unexpected_bytes(RankId peer) const {
  int64_t bytes = 0;
  for (const Room& room : kept_) {
    if (room.rank == peer.value) bytes += std::min(room.bytes, (kPiecesAhead + 1) * kPieceBytes);
  }
  return bytes;
}

absl::Status SnapshotCopies::CheckSizes() const {
  if (layout_.bytes == own_.bytes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a snapshot of worker:", own_.rank, " has ",
                                          layout_.bytes, " bytes, its keeper expects ",
                                          own_.bytes));
}

absl::Status SnapshotCopies::Prepare() {
  WEFT_RETURN_IF_ERROR(CheckSizes());
  if (own_.images[0].valid()) return absl::OkStatus();
  for (Room& room : kept_) {
    for (Tensor& image : room.images) {
      WEFT_ASSIGN_OR_RETURN(image, TakeMemory(room.bytes));
    }
  }
  // In this order: the first of its own says that all are there.
  WEFT_ASSIGN_OR_RETURN(own_.images[1], TakeMemory(own_.bytes));
  WEFT_ASSIGN_OR_RETURN(own_.images[0], TakeMemory(own_.bytes));
  return absl::OkStatus();
}

absl::StatusOr<SnapshotCopies::Agreement> SnapshotCopies::Agree(int64_t step, bool is_settled,
                                                                bool is_whole) {
  values_.front()[0] = is_settled ? 1 : 0;
  values_.front()[1] = is_whole ? 1 : 0;
  WEFT_RETURN_IF_ERROR(options_.communicator->RunCollective(sum_, {step}, buffers_.data()));
  return Agreement{static_cast<int>(values_.front()[0]), static_cast<int>(values_.front()[1])};
}

void SnapshotCopies::Forget(size_t place) {
  options_.held->Forget(own_.keys[place]);
  for (const Room& room : kept_) options_.held->Forget(room.keys[place]);
}

absl::Status SnapshotCopies::Make(int64_t step) {
  bool is_settled = false, is_whole = false;
  {
    MutexLock lock(mutex_);
    is_settled = !travels_;
    is_whole = is_settled && is_whole_;
  }
  WEFT_ASSIGN_OR_RETURN(const Agreement agreed, Agree(step, is_settled, is_whole));
  if (agreed.settled < ranks_) {
    ++skipped_;
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(Prepare());
  if (has_begun_ && agreed.whole == ranks_) {
    // From here on this job's own copies stand for all that came before it.
    options_.held->KeepOnly(options_.identity.job_id);
    newest_ = 1 - newest_;
  }
  has_begun_ = true;
  Forget(newest_);
  const uint64_t job_id = options_.identity.job_id;
  own_.keys[newest_] = {job_id, own_.rank, step};
  for (Room& room : kept_) room.keys[newest_] = {job_id, room.rank, step};
  WEFT_RETURN_IF_ERROR(FillSnapshot(*options_.variables, layout_, own_.images[newest_]));
  ++made_;
  MutexLock lock(mutex_);
  travels_ = true;
  place_ = newest_;
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  changed_.NotifyAll();
  return absl::OkStatus();
}

void SnapshotCopies::Loop() {
  while (true) {
    size_t place = 0;
    {
      MutexLock lock(mutex_);
      while (!travels_ && !ending_) changed_.Wait(mutex_);
      if (!travels_) return;
      place = place_;
    }
    const absl::StatusOr<bool> whole = Travel(place);
    MutexLock lock(mutex_);
    travels_ = false;
    is_whole_ = whole.ok() && *whole;
    changed_.NotifyAll();
  }
}

void SnapshotCopies::Settle() {
  MutexLock lock(mutex_);
  while (travels_) changed_.Wait(mutex_);
}

absl::Status SnapshotCopies::Await(Wait& wait, const char* what, int rank) {
  absl::Status status = wait.For(*options_.clock, options_.clock->Now() + options_.stall_timeout);
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(
      absl::StrCat("worker:", own_.rank, " waited ", absl::FormatDuration(options_.stall_timeout),
                   " for a copy of a state ", what, " worker:", rank,
                   "; if that may take so long, raise --stall-timeout"));
}

MessageHeader SnapshotCopies::PieceHeader(Room& room, int64_t step, int64_t bytes) const {
  MessageHeader header;
  header.job_id = options_.identity.job_id;
  header.incarnation = options_.identity.incarnation;
  header.stream = kSnapshotStream;
  header.sequence = room.sequence++;
  header.step = step;
  header.dtype = DType::kUint8;
  header.elements = header.bytes = static_cast<uint64_t>(bytes);
  return header;
}

MessageHeader SnapshotCopies::TakenHeader(Room& room, int64_t step) const {
  MessageHeader header;
  header.job_id = options_.identity.job_id;
  header.incarnation = options_.identity.incarnation;
  header.stream = kTakenStream;
  header.sequence = room.taken++;
  header.step = step;
  header.dtype = DType::kUint8;
  header.elements = header.bytes = sizeof(taken_word_);
  return header;
}

absl::Status SnapshotCopies::Send(const MessageHeader& header, int peer, const void* data,
                                  Wait& wait) {
  WEFT_RETURN_IF_ERROR(Await(wait, "to leave for", peer));
  wait.Start();
  options_.transport->Send(RankId(peer), header, data, wait);
  return absl::OkStatus();
}

absl::Status SnapshotCopies::Receive(const MessageHeader& header, int peer, void* data) {
  receiving_->Start();
  options_.transport->Receive(RankId(peer), header, data, *receiving_);
  return Await(*receiving_, "from", peer);
}

absl::Status SnapshotCopies::AwaitTaken(int64_t pieces, int64_t step) {
  if (pieces == 0 || pieces % kPiecesAhead != 0) return absl::OkStatus();
  return Receive(TakenHeader(own_, step), keeper(), &heard_word_);
}

absl::Status SnapshotCopies::TellTaken(Room& room, int64_t pieces, int64_t step) {
  if (pieces % kPiecesAhead != 0 || pieces == PiecesOf(room.bytes)) return absl::OkStatus();
  return Send(TakenHeader(room, step), room.rank, &taken_word_, *telling_);
}

// Ranks go through the pieces side by side: each sends its n-th before it waits for the n-th of
// others, and waits for a word of its keeper that needs no later piece. So nobody waits in a ring.
absl::StatusOr<bool> SnapshotCopies::TravelPieces(size_t place) {
  const int64_t step = own_.keys[place].step;
  const auto* const own = static_cast<const std::byte*>(own_.images[place].raw_data());
  int64_t pieces = PiecesOf(own_.bytes);
  for (const Room& room : kept_) pieces = std::max(pieces, PiecesOf(room.bytes));
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t offset = piece * kPieceBytes;
    if (offset < own_.bytes) {
      WEFT_RETURN_IF_ERROR(AwaitTaken(piece, step));
      const int64_t bytes = std::min(kPieceBytes, own_.bytes - offset);
      WEFT_RETURN_IF_ERROR(Send(PieceHeader(own_, step, bytes), keeper(), own + offset, *sending_));
    }
    for (Room& room : kept_) {
      if (offset >= room.bytes) continue;
      auto* const image = static_cast<std::byte*>(room.images[place].raw_data());
      const int64_t bytes = std::min(kPieceBytes, room.bytes - offset);
      WEFT_RETURN_IF_ERROR(Receive(PieceHeader(room, step, bytes), room.rank, image + offset));
      WEFT_RETURN_IF_ERROR(TellTaken(room, piece + 1, step));
    }
  }
  // The stamp of its rank: what a keeper holds is what that rank had.
  constexpr auto kStampBytes = static_cast<int64_t>(sizeof(own_stamp_));
  WEFT_RETURN_IF_ERROR(
      Send(PieceHeader(own_, step, kStampBytes), keeper(), &own_stamp_, *sending_));
  bool is_whole = true;
  for (Room& room : kept_) {
    WEFT_RETURN_IF_ERROR(Receive(PieceHeader(room, step, kStampBytes), room.rank, &kept_stamp_));
    if (ChecksumOfImage(room.images[place]) == kept_stamp_) {
      options_.held->Hold({room.keys[place], /*is_whole=*/true, room.bytes, kept_stamp_},
                          room.images[place]);
      continue;
    }
    Log(LogLevel::kWarning, "the copy of the state of worker:", room.rank, " after step ", step,
        " has come damaged, and is not kept");
    is_whole = false;
  }
  if (!kept_.empty()) {
    WEFT_RETURN_IF_ERROR(Await(*telling_, "to be acknowledged to", kept_.back().rank));
  }
  WEFT_RETURN_IF_ERROR(Await(*sending_, "to leave for", keeper()));
  return is_whole;
}

absl::StatusOr<bool> SnapshotCopies::Travel(size_t place) {
  own_stamp_ = ChecksumOfImage(own_.images[place]);
  options_.held->Hold({own_.keys[place], /*is_whole=*/true, own_.bytes, own_stamp_},
                      own_.images[place]);
  absl::StatusOr<bool> whole = TravelPieces(place);
  if (whole.ok()) return whole;
  // A peer is lost, or silent: so is the job, which must not wait for the next snapshot to notice.
  Log(LogLevel::kInfo, "copies of states end: ", whole.status().ToString());
  options_.transport->Abort(whole.status());
  // What is posted uses the rooms' memory.
  for (Wait* const wait : {sending_.get(), telling_.get(), receiving_.get()}) {
    wait->For(*options_.clock, absl::InfiniteFuture()).IgnoreError();
  }
  return whole;
}

}  // namespace weft

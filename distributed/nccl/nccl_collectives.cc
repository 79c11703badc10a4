#include "distributed/nccl/nccl_collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "executor/interfaces/wait_info.h"
#include "platform/polling.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// How often the watcher looks.
constexpr absl::Duration kLookInterval = absl::Milliseconds(1);
// The library is asked for errors once in so many looks.
constexpr int kLooksPerQuestion = 20;
// How long Abort lets a call of the library come back; such calls do not wait for peers.
constexpr absl::Duration kCallPatience = absl::Milliseconds(100);
// How long peers that end at about the same time may take.
constexpr absl::Duration kClosePatience = absl::Seconds(2);

std::vector<int> KeyOfGroup(const std::vector<RankId>& members, bool sends) {
  std::vector<int> key;
  for (const RankId member : members) key.push_back(member.value);
  if (sends) key.push_back(-1);
  return key;
}

bool IsTransfer(const DeviceCollectiveSpec& spec) {
  return spec.kind == DeviceCollectiveSpec::Kind::kSend ||
         spec.kind == DeviceCollectiveSpec::Kind::kReceive;
}

std::vector<int> KeyOfGroup(const DeviceCollectiveSpec& spec) {
  return KeyOfGroup(spec.group, IsTransfer(spec));
}

std::string GroupText(const std::vector<RankId>& members) {
  return absl::StrJoin(members, ", ", [](std::string* out, RankId member) {
    absl::StrAppend(out, "worker:", member.value);
  });
}

// The type to sum in; none where NCCL has no such sums.
std::optional<NcclType> SumType(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return NcclType::kInt8;
    case DType::kUint8:
      return NcclType::kUint8;
    case DType::kInt32:
      return NcclType::kInt32;
    case DType::kUint32:
      return NcclType::kUint32;
    case DType::kInt64:
      return NcclType::kInt64;
    case DType::kUint64:
      return NcclType::kUint64;
    case DType::kFloat16:
      return NcclType::kFloat16;
    case DType::kBfloat16:
      return NcclType::kBfloat16;
    case DType::kFloat32:
      return NcclType::kFloat32;
    case DType::kFloat64:
      return NcclType::kFloat64;
    default:
      return std::nullopt;
  }
}

bool IsSum(const DeviceCollectiveSpec& spec) {
  return spec.kind == DeviceCollectiveSpec::Kind::kAllReduce ||
         spec.kind == DeviceCollectiveSpec::Kind::kReduceScatter;
}

// No error. A communicator that does not block may be in progress within a group as well.
bool GoesOn(NcclCode code) { return code == NcclCode::kSuccess || code == NcclCode::kInProgress; }

// A group of calls, which start together. Also of one send or receive: alone, of a communicator
// that does not block, it may return success before it is on its stream (NVIDIA/nccl issue 1495).
NcclCode InOneGroup(Nccl& nccl, absl::FunctionRef<NcclCode()> calls) {
  NcclCode code = nccl.GroupStart();
  if (GoesOn(code)) code = calls();
  const NcclCode ended = nccl.GroupEnd();
  return GoesOn(code) ? ended : code;
}

bool AreEqual(const std::vector<int64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](int64_t count) { return count == counts.front(); });
}

}  // namespace

NcclCollectives::NcclCollectives(Nccl& nccl, Device& device, Clock& clock, RankId rank,
                                 absl::Duration stall_timeout)
    : nccl_(nccl),
      device_(device),
      clock_(clock),
      rank_(rank),
      stall_timeout_(stall_timeout),
      watcher_([this] { Watch(); }) {}

NcclCollectives::~NcclCollectives() {
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
    changed_.NotifyAll();
  }
  watcher_.join();
  Close();
  stream_.reset();
  byte_.reset();
}

// Without an error, the members leave together; after one, each for itself.
void NcclCollectives::Close() {
  if (!is_aborted_.load()) {
    const absl::Status finished = OnCard([this]() -> absl::Status {
      for (auto& [key, group] : groups_) {
        if (group.communicator == nullptr) continue;
        NcclCode code = nccl_.Finalize(group.communicator);
        const absl::Time deadline = clock_.Now() + kClosePatience;
        while (code == NcclCode::kInProgress && clock_.Now() < deadline) {
          absl::SleepFor(kLookInterval);
          if (nccl_.AsyncError(group.communicator, &code) != NcclCode::kSuccess) break;
        }
        if (code != NcclCode::kSuccess) continue;  // it is aborted below
        (void)nccl_.Destroy(group.communicator);
        MutexLock lock(abort_mutex_);
        std::erase(communicators_, group.communicator);
      }
      return absl::OkStatus();
    });
    finished.IgnoreError();  // nobody is there to hear of it
  }
  AbortCommunicators();
}

absl::Status NcclCollectives::OnCard(absl::FunctionRef<absl::Status()> action) {
  if (stream_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(stream_, device_.NewStream("nccl"));
  }
  const Work work{[](void* argument, Stream&) {
                    return (*static_cast<absl::FunctionRef<absl::Status()>*>(argument))();
                  },
                  &action};
  WEFT_RETURN_IF_ERROR(stream_->Enqueue(work));
  // The action has a deadline of its own.
  return stream_->Synchronize(stall_timeout_ + kClosePatience);
}

absl::Status NcclCollectives::LibraryError(NcclCode code, NcclCommunicator communicator,
                                           const std::string& what) const {
  const std::string details = nccl_.LastError(communicator);
  const std::string text = absl::StrCat(
      "NCCL ", NcclVersionText(nccl_.version()), " fails in ", what, ": ", nccl_.ErrorText(code),
      " (", static_cast<int>(code), ")", details.empty() ? "" : absl::StrCat(", ", details),
      "; NCCL_DEBUG=WARN makes it say more");
  return code == NcclCode::kRemoteError ? absl::UnavailableError(text) : absl::InternalError(text);
}

absl::StatusOr<std::string> NcclCollectives::NewGroupId() {
  NcclUniqueId id = {};
  WEFT_RETURN_IF_ERROR(OnCard([&]() -> absl::Status {
    const NcclCode code = nccl_.NewUniqueId(&id);
    return code == NcclCode::kSuccess ? absl::OkStatus()
                                      : LibraryError(code, nullptr, "making an id");
  }));
  return std::string(id.bytes.data(), id.bytes.size());
}

absl::Status NcclCollectives::UseGroups(const std::vector<CardGroup>& groups, int version) {
  if (version != nccl_.version()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker:", rank_.value, " has NCCL ", NcclVersionText(nccl_.version()),
                     ", the ids of the groups are of NCCL ", NcclVersionText(version),
                     "; install the same version for all workers"));
  }
  WEFT_RETURN_IF_ERROR(status());  // the communicators of before are gone
  for (auto& [key, group] : groups_) group.is_used = false;
  for (const CardGroup& joined : groups) {
    const auto [found, is_new] = groups_.try_emplace(KeyOfGroup(joined.members, joined.sends));
    Group& group = found->second;
    group.members = joined.members;
    group.text = GroupText(joined.members);
    if (is_new && joined.sends) {
      MutexLock lock(mutex_);
      group.queue = under_way_.size();
      under_way_.emplace_back();
    }
    if (group.communicator == nullptr) WEFT_RETURN_IF_ERROR(Join(group, joined));
    group.channels = joined.channels;
    group.is_used = true;
  }
  return absl::OkStatus();
}

absl::Status NcclCollectives::Join(Group& group, const CardGroup& joined) {
  NcclUniqueId id = {};
  const auto member = std::find(joined.members.begin(), joined.members.end(), rank_);
  if (joined.id.size() != id.bytes.size() || member == joined.members.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker:", rank_.value, " cannot join the cards of ", group.text, " by an id of ",
        joined.id.size(), " bytes: expected ", id.bytes.size(), ", and its rank"));
  }
  std::memcpy(id.bytes.data(), joined.id.data(), id.bytes.size());
  const std::string what = absl::StrCat("joining the cards of ", group.text);
  absl::Status status = OnCard([&]() -> absl::Status {
    return Call(group.communicator, what, [&]() -> NcclCode {
      const NcclCode code = nccl_.InitRank(id, static_cast<int>(joined.members.size()),
                                           static_cast<int>(member - joined.members.begin()),
                                           joined.sends ? kSendCtas : 0, &group.communicator);
      MutexLock lock(abort_mutex_);
      if (group.communicator != nullptr) communicators_.push_back(group.communicator);
      return code;
    });
  });
  if (status.ok() && joined.sends) status = Connect(group, joined, what);
  return status.ok() ? status : Fail(status);
}

absl::Status NcclCollectives::Connect(Group& group, const CardGroup& joined,
                                      const std::string& what) {
  if (byte_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(byte_, device_.Allocate(1));
  }
  return OnCard([&]() -> absl::Status {
    return Call(group.communicator, what, [&] {
      return InOneGroup(nccl_, [&] {
        void* const stream = stream_->native_handle();
        return joined.members[0] == rank_
                   ? nccl_.Send(byte_->data(), 1, NcclType::kInt8, 1, group.communicator, stream)
                   : nccl_.Receive(byte_->data(), 1, NcclType::kInt8, 0, group.communicator,
                                   stream);
      });
    });
  });
}

absl::Status NcclCollectives::Call(NcclCommunicator& communicator, const std::string& what,
                                   absl::FunctionRef<NcclCode()> call) {
  bool is_first = true;
  absl::Status failed;
  // Calls the library, then asks it: each collective goes on in a thread of the library's for some
  // microseconds. True when that is over.
  const auto is_over = [&] {
    NcclCode code = NcclCode::kSuccess;
    calls_.fetch_add(1);
    if (is_aborted_.load()) {
      calls_.fetch_sub(1);
      return true;
    }
    if (std::exchange(is_first, false)) {
      code = call();
    } else if (const NcclCode asked = nccl_.AsyncError(communicator, &code);
               asked != NcclCode::kSuccess) {
      code = asked;
    }
    // The communicator may be asked for details until it is no longer being called.
    failed = GoesOn(code) ? absl::OkStatus() : LibraryError(code, communicator, what);
    calls_.fetch_sub(1);
    return is_aborted_.load() || code != NcclCode::kInProgress;
  };
  const bool ended = PollUntil(is_over, clock_, clock_.Now() + stall_timeout_);
  if (is_aborted_.load()) return status();  // what the library says then, is a consequence
  if (ended) return failed;
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank_.value, " waited ", absl::FormatDuration(stall_timeout_), " for ", what));
}

std::vector<CardGroup> NcclCollectives::joined() const {
  std::vector<CardGroup> joined;
  for (const auto& [key, group] : groups_) {
    if (group.communicator != nullptr) joined.push_back({group.members, "", key.back() < 0});
  }
  return joined;
}

bool NcclCollectives::Takes(const DeviceCollectiveSpec& spec) const {
  const auto found = groups_.find(KeyOfGroup(spec));
  if (found == groups_.end() || !found->second.is_used) return false;
  const std::vector<int64_t>& channels = found->second.channels;
  if (IsTransfer(spec)) return std::binary_search(channels.begin(), channels.end(), spec.channel);
  return !IsSum(spec) || SumType(spec.dtype).has_value();
}

absl::StatusOr<DeviceCollectives::Handle> NcclCollectives::Open(const DeviceCollectiveSpec& spec) {
  auto opened = std::make_unique<Opened>();
  opened->spec = spec;
  opened->group = &groups_.at(KeyOfGroup(spec));
  opened->what = spec.kind == DeviceCollectiveSpec::Kind::kReceive ? spec.tensors
                 : spec.kind == DeviceCollectiveSpec::Kind::kSend
                     ? absl::StrCat("the receiver of ", spec.tensors)
                     : absl::StrCat(spec.tensors, spec.tensors.empty() ? "" : " of ",
                                    "collective '", spec.name, "'");
  opened_.push_back(std::move(opened));
  return static_cast<Handle>(opened_.size()) - 1;
}

absl::StatusOr<NcclCollectives::Run*> NcclCollectives::NewRun() {
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    if (!free_runs_.empty()) {
      Run* const run = free_runs_.back();
      free_runs_.pop_back();
      return run;
    }
  }
  auto run = std::make_unique<Run>();
  run->owner = this;
  WEFT_ASSIGN_OR_RETURN(run->begun, device_.NewEvent());
  WEFT_ASSIGN_OR_RETURN(run->ended, device_.NewEvent());
  MutexLock lock(mutex_);
  runs_.push_back(std::move(run));
  return runs_.back().get();
}

absl::Status NcclCollectives::Enqueue(Handle collective, MessageKey key, void* const* buffers,
                                      Stream& stream) {
  Opened& opened = *opened_[collective];
  WEFT_ASSIGN_OR_RETURN(Run* const run, NewRun());
  run->opened = &opened;
  run->key = key;
  const bool is_exchange = opened.spec.kind == DeviceCollectiveSpec::Kind::kAllToAll;
  run->buffers.assign(buffers, buffers + (is_exchange ? 2 : 1));
  run->since = absl::InfiniteFuture();
  ++opened.runs;
  WEFT_RETURN_IF_ERROR(stream.Record(*run->begun));
  WEFT_RETURN_IF_ERROR(stream.Enqueue({&NcclCollectives::Launch, run}));
  WEFT_RETURN_IF_ERROR(stream.Record(*run->ended));
  MutexLock lock(mutex_);
  if (IsIdle()) changed_.NotifyAll();
  under_way_[opened.group->queue].push_back(run);
  return absl::OkStatus();
}

absl::Status NcclCollectives::Launch(void* argument, Stream& stream) {
  const Run& run = *static_cast<const Run*>(argument);
  NcclCollectives& self = *run.owner;
  const absl::Status status = self.Call(run.opened->group->communicator, run.opened->what,
                                        [&] { return self.Issue(run, stream.native_handle()); });
  return status.ok() ? status : self.Fail(self.WaitedFor(status, run));
}

NcclCode NcclCollectives::Issue(const Run& run, void* stream) {
  const DeviceCollectiveSpec& spec = run.opened->spec;
  const NcclCommunicator communicator = run.opened->group->communicator;
  void* const data = run.buffers[0];
  const int64_t all = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  switch (spec.kind) {
    case DeviceCollectiveSpec::Kind::kAllReduce:
      if (all == 0) return NcclCode::kSuccess;
      return nccl_.AllReduce(data, data, static_cast<size_t>(all), *SumType(spec.dtype),
                             communicator, stream);
    case DeviceCollectiveSpec::Kind::kBroadcast:
      if (all == 0) return NcclCode::kSuccess;
      return nccl_.Broadcast(data, data, static_cast<size_t>(DTypeBytes(spec.dtype, all)),
                             NcclType::kInt8, spec.root, communicator, stream);
    case DeviceCollectiveSpec::Kind::kAllGather:
      return all == 0 ? NcclCode::kSuccess : IssueGathered(run, NcclType::kInt8, stream);
    case DeviceCollectiveSpec::Kind::kReduceScatter:
      return all == 0 ? NcclCode::kSuccess : IssueScattered(run, *SumType(spec.dtype), stream);
    case DeviceCollectiveSpec::Kind::kAllToAll:
      return IssueAllToAll(run, stream);
    case DeviceCollectiveSpec::Kind::kSend:
    case DeviceCollectiveSpec::Kind::kReceive:
      return all == 0 ? NcclCode::kSuccess : IssueTransfer(run, stream);
  }
  return NcclCode::kInvalidUsage;
}

// Shards of different sizes: a broadcast of each.
NcclCode NcclCollectives::IssueGathered(const Run& run, NcclType type, void* stream) {
  const DeviceCollectiveSpec& spec = run.opened->spec;
  const NcclCommunicator communicator = run.opened->group->communicator;
  char* shard = static_cast<char*>(run.buffers[0]);
  const auto bytes = [&](size_t m) {
    return static_cast<size_t>(DTypeBytes(spec.dtype, spec.counts[m]));
  };
  if (AreEqual(spec.counts)) {
    return nccl_.AllGather(shard + bytes(0) * static_cast<size_t>(spec.member), shard, bytes(0),
                           type, communicator, stream);
  }
  return InOneGroup(nccl_, [&] {
    NcclCode code = NcclCode::kSuccess;
    for (size_t m = 0; m < spec.counts.size() && GoesOn(code); ++m) {
      if (spec.counts[m] > 0) {
        code = nccl_.Broadcast(shard, shard, bytes(m), type, static_cast<int>(m), communicator,
                               stream);
      }
      shard += bytes(m);
    }
    return code;
  });
}

// Shards of different sizes: a sum of each.
NcclCode NcclCollectives::IssueScattered(const Run& run, NcclType type, void* stream) {
  const DeviceCollectiveSpec& spec = run.opened->spec;
  const NcclCommunicator communicator = run.opened->group->communicator;
  char* shard = static_cast<char*>(run.buffers[0]);
  const auto bytes = [&](size_t m) {
    return static_cast<size_t>(DTypeBytes(spec.dtype, spec.counts[m]));
  };
  if (AreEqual(spec.counts)) {
    return nccl_.ReduceScatter(shard, shard + bytes(0) * static_cast<size_t>(spec.member),
                               static_cast<size_t>(spec.counts[0]), type, communicator, stream);
  }
  return InOneGroup(nccl_, [&] {
    NcclCode code = NcclCode::kSuccess;
    for (size_t m = 0; m < spec.counts.size() && GoesOn(code); ++m) {
      if (spec.counts[m] > 0) {
        code = nccl_.Reduce(shard, shard, static_cast<size_t>(spec.counts[m]), type,
                            static_cast<int>(m), communicator, stream);
      }
      shard += bytes(m);
    }
    return code;
  });
}

NcclCode NcclCollectives::IssueAllToAll(const Run& run, void* stream) {
  const DeviceCollectiveSpec& spec = run.opened->spec;
  const NcclCommunicator communicator = run.opened->group->communicator;
  char* to = static_cast<char*>(run.buffers[0]);
  const char* from = static_cast<const char*>(run.buffers[1]);
  return InOneGroup(nccl_, [&] {
    NcclCode code = NcclCode::kSuccess;
    for (size_t m = 0; m < spec.counts.size() && GoesOn(code); ++m) {
      const auto sent = static_cast<size_t>(DTypeBytes(spec.dtype, spec.counts[m]));
      const auto received = static_cast<size_t>(DTypeBytes(spec.dtype, spec.received[m]));
      const auto peer = static_cast<int>(m);
      if (sent > 0) code = nccl_.Send(from, sent, NcclType::kInt8, peer, communicator, stream);
      if (received > 0 && GoesOn(code)) {
        code = nccl_.Receive(to, received, NcclType::kInt8, peer, communicator, stream);
      }
      from += sent;
      to += received;
    }
    return code;
  });
}

// Member 0 sends, member 1 receives.
NcclCode NcclCollectives::IssueTransfer(const Run& run, void* stream) {
  const DeviceCollectiveSpec& spec = run.opened->spec;
  const NcclCommunicator communicator = run.opened->group->communicator;
  const auto bytes = static_cast<size_t>(DTypeBytes(spec.dtype, spec.counts[0]));
  void* const data = run.buffers[0];
  return InOneGroup(nccl_, [&] {
    return spec.kind == DeviceCollectiveSpec::Kind::kSend
               ? nccl_.Send(data, bytes, NcclType::kInt8, 1, communicator, stream)
               : nccl_.Receive(data, bytes, NcclType::kInt8, 0, communicator, stream);
  });
}

absl::Status NcclCollectives::status() const {
  MutexLock lock(mutex_);
  return status_;
}

std::vector<DeviceTraffic> NcclCollectives::traffic() const {
  std::vector<DeviceTraffic> traffic;
  for (const std::unique_ptr<Opened>& opened : opened_) {
    const DeviceCollectiveSpec& spec = opened->spec;
    const RankId to = IsTransfer(spec) ? spec.group[1] : RankId();
    traffic.push_back({spec.name, to, opened->runs, opened->runs * spec.sent_bytes});
  }
  return traffic;
}

// ---- Errors

absl::Status NcclCollectives::WaitedFor(const absl::Status& status, const Run& run) const {
  std::string where = absl::StrCat("step ", run.key.step);
  if (run.key.micro_batch >= 0) absl::StrAppend(&where, ", micro-batch ", run.key.micro_batch);
  const DeviceCollectiveSpec& spec = run.opened->spec;
  std::vector<RankId> peers = spec.group;
  std::erase(peers, rank_);
  const bool receives = spec.kind == DeviceCollectiveSpec::Kind::kReceive;
  const std::string place =
      IsTransfer(spec) ? where : absl::StrCat("node '", spec.name, "', ", where);
  return WithWaitInfo(status, {run.opened->what, place,
                               absl::StrCat(receives ? "from " : "with ", GroupText(peers))});
}

void NcclCollectives::Watch() {
  int looks = 0;
  while (true) {
    absl::Status status;
    {
      MutexLock lock(mutex_);
      while (IsIdle() && !is_closing_) changed_.Wait(mutex_);
      if (is_closing_) return;
      clock_.WaitUntil(changed_, mutex_, clock_.Now() + kLookInterval);
      status = Check();
    }
    if (status.ok() && ++looks % kLooksPerQuestion == 0) status = AskLibrary();
    if (!status.ok()) Fail(status).IgnoreError();  // it is kept
  }
}

NcclCollectives::Run* NcclCollectives::FindBegun() {
  Run* longest = nullptr;
  const absl::Time now = clock_.Now();
  for (std::deque<Run*>& queue : under_way_) {
    while (!queue.empty() && queue.front()->ended->Done()) {
      free_runs_.push_back(queue.front());
      queue.pop_front();
    }
    if (queue.empty() || !queue.front()->begun->Done()) continue;
    Run& run = *queue.front();
    run.since = std::min(run.since, now);
    if (longest == nullptr || run.since < longest->since) longest = &run;
  }
  return longest;
}

bool NcclCollectives::IsIdle() const {
  return std::all_of(under_way_.begin(), under_way_.end(),
                     [](const std::deque<Run*>& queue) { return queue.empty(); });
}

absl::Status NcclCollectives::Check() {
  const Run* const begun = FindBegun();
  if (begun == nullptr || !status_.ok()) return absl::OkStatus();
  const Run& first = *begun;
  if (clock_.Now() - first.since < stall_timeout_) return absl::OkStatus();
  return WaitedFor(absl::DeadlineExceededError(absl::StrCat(
                       "rank ", rank_.value, " waited ", absl::FormatDuration(stall_timeout_),
                       " for ", first.opened->what, " with ", first.opened->group->text, " (step ",
                       first.key.step, "); if steps may take that long, raise --stall-timeout")),
                   first);
}

absl::Status NcclCollectives::AskLibrary() {
  MutexLock lock(abort_mutex_);
  for (const NcclCommunicator communicator : communicators_) {
    NcclCode code = NcclCode::kSuccess;
    const NcclCode asked = nccl_.AsyncError(communicator, &code);
    if (asked != NcclCode::kSuccess) code = asked;
    if (code == NcclCode::kSuccess || code == NcclCode::kInProgress) continue;
    return LibraryError(code, communicator, "what is under way");
  }
  return absl::OkStatus();
}

absl::Status NcclCollectives::Fail(const absl::Status& status) {
  absl::Status first;
  {
    MutexLock lock(mutex_);
    if (status_.ok()) {
      const Run* const begun = FindBegun();
      status_ = begun == nullptr ? status : WaitedFor(status, *begun);
    }
    first = status_;
    is_aborted_.store(true);
    changed_.NotifyAll();
  }
  AbortCommunicators();
  return first;
}

void NcclCollectives::Abort(const absl::Status& reason) {
  Fail(absl::AbortedError(absl::StrCat("the job was aborted: ", reason.message()))).IgnoreError();
}

void NcclCollectives::AbortCommunicators() {
  is_aborted_.store(true);
  const absl::Time deadline = absl::Now() + kCallPatience;
  while (calls_.load() > 0 && absl::Now() < deadline) std::this_thread::yield();
  MutexLock lock(abort_mutex_);
  for (const NcclCommunicator communicator : communicators_) (void)nccl_.Abort(communicator);
  communicators_.clear();
}

}  // namespace weft

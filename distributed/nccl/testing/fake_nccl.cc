#include "distributed/nccl/testing/fake_nccl.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tensor/dtype.h"

namespace weft::testing {
namespace {

DType DTypeOf(NcclType type) {
  switch (type) {
    case NcclType::kInt8:
      return DType::kInt8;
    case NcclType::kUint8:
      return DType::kUint8;
    case NcclType::kInt32:
      return DType::kInt32;
    case NcclType::kUint32:
      return DType::kUint32;
    case NcclType::kInt64:
      return DType::kInt64;
    case NcclType::kUint64:
      return DType::kUint64;
    case NcclType::kFloat16:
      return DType::kFloat16;
    case NcclType::kFloat32:
      return DType::kFloat32;
    case NcclType::kFloat64:
      return DType::kFloat64;
    case NcclType::kBfloat16:
      return DType::kBfloat16;
  }
  return DType::kInvalid;
}

template <typename T>
double ToDouble(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
    return static_cast<double>(ToFloat(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
T RoundedTo(double sum) {
  if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(static_cast<float>(sum));
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return ToBfloat16(static_cast<float>(sum));
  } else {
    return static_cast<T>(sum);
  }
}

// The sum of `count` elements from `first` on over all members.
std::vector<char> SumOf(NcclType type, size_t first, size_t count,
                        const std::vector<std::vector<char>>& members) {
  const DType dtype = DTypeOf(type);
  std::vector<char> sums(static_cast<size_t>(DTypeBytes(dtype, static_cast<int64_t>(count))));
  const auto add = [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (const std::vector<char>& bytes : members) {
        T value;
        std::memcpy(&value, bytes.data() + (first + i) * sizeof(T), sizeof(T));
        sum += ToDouble(value);
      }
      const T rounded = RoundedTo<T>(sum);
      std::memcpy(sums.data() + i * sizeof(T), &rounded, sizeof(T));
    }
  };
  switch (dtype) {
    case DType::kFloat16:
      add(Float16{});
      break;
    case DType::kBfloat16:
      add(Bfloat16{});
      break;
    case DType::kFloat64:
      add(double{});
      break;
    case DType::kInt32:
      add(int32_t{});
      break;
    case DType::kInt64:
      add(int64_t{});
      break;
    case DType::kUint32:
      add(uint32_t{});
      break;
    case DType::kUint64:
      add(uint64_t{});
      break;
    case DType::kInt8:
      add(int8_t{});
      break;
    case DType::kUint8:
      add(uint8_t{});
      break;
    default:
      add(float{});
      break;
  }
  return sums;
}

size_t BytesOf(NcclType type, size_t count) {
  return static_cast<size_t>(DTypeBytes(DTypeOf(type), static_cast<int64_t>(count)));
}

}  // namespace

class FakeNcclRank final : public Nccl {
 public:
  FakeNcclRank(FakeNcclWorld& world, FakeNcclWorld::IsAllocated is_allocated, int version,
               FakeNcclWorld::Enqueue enqueue)
      : world_(world),
        is_allocated_(std::move(is_allocated)),
        enqueue_(std::move(enqueue)),
        version_(version) {}

  int version() const override { return version_; }

  NcclCode NewUniqueId(NcclUniqueId* id) override {
    MutexLock lock(world_.mutex_);
    const std::string text = absl::StrCat("fake nccl ", ++world_.ids_);
    *id = {};
    std::memcpy(id->bytes.data(), text.data(), text.size());
    return NcclCode::kSuccess;
  }

  NcclCode InitRank(const NcclUniqueId& id, int ranks, int rank, int max_ctas,
                    NcclCommunicator* communicator) override {
    MutexLock lock(world_.mutex_);
    if (rank == world_.refused_rank_) return NcclCode::kSystemError;
    if (max_ctas < 0 || max_ctas > 32) {  // NCCL's limits
      return world_.Violate(absl::StrCat("a communicator of ", max_ctas, " thread blocks"));
    }
    FakeNcclWorld::Group& group = world_.groups_[std::string(id.bytes.data(), id.bytes.size())];
    if (group.ranks == 0) group.ranks = ranks;
    if (group.ranks != ranks || rank < 0 || rank >= ranks || !group.joined.insert(rank).second) {
      return world_.Violate(absl::StrCat("rank ", rank, " of ", ranks, " joins a communicator of ",
                                         group.ranks, " where it is or cannot be"));
    }
    auto member = std::make_unique<FakeNcclWorld::Member>();
    member->group = &group;
    member->rank = rank;
    *communicator = member.get();
    world_.members_[member.get()] = std::move(member);
    world_.changed_.NotifyAll();
    return NcclCode::kInProgress;
  }

  NcclCode AsyncError(NcclCommunicator communicator, NcclCode* error) override {
    MutexLock lock(world_.mutex_);
    const FakeNcclWorld::Member* const member = Find(communicator);
    if (member == nullptr) return world_.Violate("AsyncError of no communicator");
    if (questions_left_ > 0) {
      --questions_left_;
      *error = NcclCode::kInProgress;
      return NcclCode::kSuccess;
    }
    const bool is_whole = static_cast<int>(member->group->joined.size()) == member->group->ranks;
    *error = is_whole ? world_.async_error_ : NcclCode::kInProgress;
    return NcclCode::kSuccess;
  }

  NcclCode Finalize(NcclCommunicator communicator) override {
    MutexLock lock(world_.mutex_);
    return Find(communicator) != nullptr ? NcclCode::kSuccess
                                         : world_.Violate("Finalize of no communicator");
  }
  NcclCode Destroy(NcclCommunicator communicator) override { return End(communicator, false); }
  NcclCode Abort(NcclCommunicator communicator) override { return End(communicator, true); }

  NcclCode AllReduce(const void* from, void* to, size_t count, NcclType type,
                     NcclCommunicator communicator, void* stream) override {
    return Collect(stream, "AllReduce", -1, count, type, communicator, from, count, to, count,
                   [=](int, const auto& all) { return SumOf(type, 0, count, all); });
  }
  NcclCode AllGather(const void* from, void* to, size_t count, NcclType type,
                     NcclCommunicator communicator, void* stream) override {
    const size_t ranks = RanksOf(communicator);
    return Collect(stream, "AllGather", -1, count, type, communicator, from, count, to,
                   count * ranks, [](int, const auto& all) {
                     std::vector<char> gathered;
                     for (const auto& bytes : all) {
                       gathered.insert(gathered.end(), bytes.begin(), bytes.end());
                     }
                     return gathered;
                   });
  }
  NcclCode ReduceScatter(const void* from, void* to, size_t count, NcclType type,
                         NcclCommunicator communicator, void* stream) override {
    const size_t ranks = RanksOf(communicator);
    return Collect(stream, "ReduceScatter", -1, count, type, communicator, from, count * ranks, to,
                   count, [=](int rank, const auto& all) {
                     return SumOf(type, static_cast<size_t>(rank) * count, count, all);
                   });
  }
  NcclCode Broadcast(const void* from, void* to, size_t count, NcclType type, int root,
                     NcclCommunicator communicator, void* stream) override {
    return Collect(stream, "Broadcast", root, count, type, communicator, from, count, to, count,
                   [=](int, const auto& all) { return all[static_cast<size_t>(root)]; });
  }
  NcclCode Reduce(const void* from, void* to, size_t count, NcclType type, int root,
                  NcclCommunicator communicator, void* stream) override {
    return Collect(stream, "Reduce", root, count, type, communicator, from, count, to,
                   IsRank(communicator, root) ? count : 0, [=](int rank, const auto& all) {
                     return rank == root ? SumOf(type, 0, count, all) : std::vector<char>();
                   });
  }

  NcclCode Send(const void* from, size_t count, NcclType type, int peer,
                NcclCommunicator communicator, void* stream) override {
    const size_t bytes = BytesOf(type, count);
    FakeNcclWorld::Member* member = nullptr;
    {
      MutexLock lock(world_.mutex_);
      if (!in_group_) return world_.Violate("a Send outside of a group");
      member = Find(communicator);
      const NcclCode code = CheckCall(member, "Send", from, bytes, from, bytes);
      if (code != NcclCode::kSuccess) return code;
      world_.calls_.push_back({absl::StrCat("Send ", count, " to ", peer), member->rank});
    }
    const auto number = std::make_shared<int64_t>(0);
    const auto post = [this, member, peer, number](const std::vector<char>& given,
                                                   std::vector<char>&) {
      MutexLock lock(world_.mutex_);
      FakeNcclWorld::Letters& letters = member->group->letters[{member->rank, peer}];
      letters.waiting.push_back(given);
      *number = ++letters.sent;
      world_.changed_.NotifyAll();
      return NcclCode::kSuccess;
    };
    const auto wait = [this, member, peer, number](const std::vector<char>&, std::vector<char>&) {
      MutexLock lock(world_.mutex_);
      const NcclCode code = Begin(*member);
      if (code != NcclCode::kSuccess) return code;
      const FakeNcclWorld::Letters& letters = member->group->letters[{member->rank, peer}];
      while (letters.taken < *number && !member->is_gone) world_.changed_.Wait(world_.mutex_);
      member->is_busy = false;
      return member->is_gone ? NcclCode::kInternalError : NcclCode::kSuccess;
    };
    sends_.push_back([=, this] { return Run(stream, {nullptr, 0, nullptr, 0, wait}); });
    return Run(stream, {from, bytes, nullptr, 0, post});
  }

  // It waits for the end of the group, so that the sends of all come first.
  NcclCode Receive(void* to, size_t count, NcclType type, int peer, NcclCommunicator communicator,
                   void* stream) override {
    if (!in_group_) {
      MutexLock lock(world_.mutex_);
      return world_.Violate("a Receive outside of a group");
    }
    receives_.push_back(
        [=, this] { return ReceiveNow(to, count, type, peer, communicator, stream); });
    return NcclCode::kSuccess;
  }

  NcclCode GroupStart() override {
    if (std::exchange(in_group_, true)) {
      MutexLock lock(world_.mutex_);
      return world_.Violate("GroupStart in a group");
    }
    return NcclCode::kSuccess;
  }
  NcclCode GroupEnd() override {
    if (!std::exchange(in_group_, false)) {
      MutexLock lock(world_.mutex_);
      return world_.Violate("GroupEnd without a group");
    }
    NcclCode code = NcclCode::kSuccess;
    for (auto* const calls : {&receives_, &sends_}) {
      for (const auto& call : *calls) {
        if (code == NcclCode::kSuccess || code == NcclCode::kInProgress) code = call();
      }
      calls->clear();
    }
    return code;
  }

  std::string ErrorText(NcclCode code) override {
    return code == NcclCode::kRemoteError ? "remote process exited or there was a network error"
                                          : absl::StrCat("fake error ", static_cast<int>(code));
  }
  std::string LastError(NcclCommunicator) override { return ""; }

 private:
  FakeNcclWorld::Member* Find(NcclCommunicator communicator)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(world_.mutex_) {
    const auto member = world_.members_.find(communicator);
    if (member == world_.members_.end() || member->second->is_gone) return nullptr;
    return member->second.get();
  }

  size_t RanksOf(NcclCommunicator communicator) {
    MutexLock lock(world_.mutex_);
    const FakeNcclWorld::Member* const member = Find(communicator);
    return member == nullptr ? 0 : static_cast<size_t>(member->group->ranks);
  }

  bool IsRank(NcclCommunicator communicator, int rank) {
    MutexLock lock(world_.mutex_);
    const FakeNcclWorld::Member* const member = Find(communicator);
    return member != nullptr && member->rank == rank;
  }

  // In the stream's turn, or now.
  NcclCode Run(void* stream, FakeNcclWorld::Exchange exchange) {
    if (enqueue_ != nullptr) {
      return enqueue_(stream, std::move(exchange)) ? NcclCode::kInProgress
                                                   : NcclCode::kUnhandledCudaError;
    }
    const char* const from = static_cast<const char*>(exchange.from);
    std::vector<char> taken(exchange.taken);
    const NcclCode code = exchange.run(std::vector<char>(from, from + exchange.given), taken);
    if (code == NcclCode::kSuccess && !taken.empty()) {
      std::memcpy(exchange.to, taken.data(), taken.size());
    }
    MutexLock lock(world_.mutex_);
    questions_left_ = code == NcclCode::kSuccess ? world_.held_for_ : 0;
    return questions_left_ > 0 ? NcclCode::kInProgress : code;
  }

  // Marks the member as waiting for peers, unless it is gone or waits already.
  NcclCode Begin(FakeNcclWorld::Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(world_.mutex_) {
    if (member.is_gone) return NcclCode::kInternalError;
    if (member.is_busy) {
      return world_.Violate(
          absl::StrCat("a call of rank ", member.rank, " on one stream while another runs a call"));
    }
    member.is_busy = true;
    return NcclCode::kSuccess;
  }

  NcclCode End(NcclCommunicator communicator, bool aborts) {
    MutexLock lock(world_.mutex_);
    FakeNcclWorld::Member* const member = Find(communicator);
    if (member == nullptr) return world_.Violate("Destroy or Abort of no communicator");
    member->is_gone = true;
    world_.aborts_ += aborts ? 1 : 0;
    world_.changed_.NotifyAll();
    return NcclCode::kSuccess;
  }

  NcclCode CheckCall(FakeNcclWorld::Member* member, const char* call, const void* from,
                     size_t from_bytes, const void* to, size_t to_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(world_.mutex_) {
    if (member == nullptr) {
      return world_.Violate(absl::StrCat(call, " of a communicator that is gone"));
    }
    if (static_cast<int>(member->group->joined.size()) < member->group->ranks) {
      return world_.Violate(absl::StrCat(call, " before all have joined"));
    }
    if (!is_allocated_(from, from_bytes) || !is_allocated_(to, to_bytes)) {
      return world_.Violate(absl::StrCat(call, " of rank ", member->rank, " with ", from_bytes,
                                         " and ", to_bytes,
                                         " bytes outside of the allocations of its device"));
    }
    return NcclCode::kSuccess;
  }

  template <typename Compute>
  NcclCode Collect(void* stream, const char* call, int root, size_t count, NcclType type,
                   NcclCommunicator communicator, const void* from, size_t given, void* to,
                   size_t taken, const Compute& compute) {
    const std::string what =
        absl::StrCat(call, " ", count, " ", std::string(DTypeName(DTypeOf(type))),
                     root >= 0 ? absl::StrCat(" of ", root) : "");
    const size_t given_bytes = BytesOf(type, given);
    const size_t taken_bytes = BytesOf(type, taken);
    FakeNcclWorld::Member* member = nullptr;
    FakeNcclWorld::Posted* posted = nullptr;  // stays where it is
    {
      MutexLock lock(world_.mutex_);
      member = Find(communicator);
      const NcclCode code = CheckCall(member, call, from, given_bytes, to, taken_bytes);
      if (code != NcclCode::kSuccess) return code;
      world_.calls_.push_back({what, member->rank});
      const int64_t number = member->calls++;
      posted = &member->group->calls[number];
      if (posted->bytes.empty()) {
        posted->what = what;
        posted->bytes.resize(static_cast<size_t>(member->group->ranks));
      }
      if (posted->what != what) {
        return world_.Violate(absl::StrCat("call ", number, " of a communicator is ", what,
                                           " on rank ", member->rank, " and ", posted->what,
                                           " on another"));
      }
    }
    const auto run = [this, member, posted, compute](const std::vector<char>& own,
                                                     std::vector<char>& result) {
      std::vector<std::vector<char>> all;
      {
        MutexLock lock(world_.mutex_);
        const NcclCode code = Begin(*member);
        if (code != NcclCode::kSuccess) return code;
        posted->bytes[static_cast<size_t>(member->rank)] = own;
        ++posted->arrived;
        world_.changed_.NotifyAll();
        while (posted->arrived < member->group->ranks && !member->is_gone) {
          world_.changed_.Wait(world_.mutex_);
        }
        member->is_busy = false;
        if (member->is_gone) return NcclCode::kInternalError;
        all = posted->bytes;
      }
      result = compute(member->rank, all);
      return NcclCode::kSuccess;
    };
    return Run(stream, {from, given_bytes, to, taken_bytes, run});
  }

  NcclCode ReceiveNow(void* to, size_t count, NcclType type, int peer,
                      NcclCommunicator communicator, void* stream) {
    const size_t bytes = BytesOf(type, count);
    FakeNcclWorld::Member* member = nullptr;
    {
      MutexLock lock(world_.mutex_);
      member = Find(communicator);
      const NcclCode code = CheckCall(member, "Receive", to, bytes, to, bytes);
      if (code != NcclCode::kSuccess) return code;
      world_.calls_.push_back({absl::StrCat("Receive ", count, " from ", peer), member->rank});
    }
    const auto run = [this, member, peer, bytes](const std::vector<char>&,
                                                 std::vector<char>& taken) {
      MutexLock lock(world_.mutex_);
      const NcclCode code = Begin(*member);
      if (code != NcclCode::kSuccess) return code;
      FakeNcclWorld::Letters& letters = member->group->letters[{peer, member->rank}];
      while (letters.waiting.empty() && !member->is_gone) world_.changed_.Wait(world_.mutex_);
      member->is_busy = false;
      if (member->is_gone) return NcclCode::kInternalError;
      const size_t sent = letters.waiting.front().size();
      if (sent != bytes) {
        return world_.Violate(absl::StrCat("rank ", member->rank, " receives ", bytes,
                                           " bytes, rank ", peer, " sends ", sent));
      }
      taken = std::move(letters.waiting.front());
      letters.waiting.pop_front();
      ++letters.taken;
      world_.changed_.NotifyAll();
      return NcclCode::kSuccess;
    };
    return Run(stream, {nullptr, 0, to, bytes, run});
  }

  FakeNcclWorld& world_;
  const FakeNcclWorld::IsAllocated is_allocated_;
  const FakeNcclWorld::Enqueue enqueue_;  // null: calls run at once
  const int version_;
  // Before the last call is over.
  int questions_left_ ABSL_GUARDED_BY(world_.mutex_) = 0;
  // Of the thread that calls, as NCCL's groups are; a thread calls for one rank.
  static thread_local bool in_group_;
  static thread_local std::vector<std::function<NcclCode()>> receives_;
  static thread_local std::vector<std::function<NcclCode()>> sends_;  // their ends
};

thread_local bool FakeNcclRank::in_group_ = false;
thread_local std::vector<std::function<NcclCode()>> FakeNcclRank::receives_;
thread_local std::vector<std::function<NcclCode()>> FakeNcclRank::sends_;

Nccl& FakeNcclWorld::AddRank(IsAllocated is_allocated, int version, Enqueue enqueue) {
  auto rank = std::make_unique<FakeNcclRank>(*this, std::move(is_allocated),
                                             version == 0 ? version_ : version, std::move(enqueue));
  Nccl& nccl = *rank;
  MutexLock lock(mutex_);
  ranks_.push_back(std::move(rank));
  return nccl;
}

NcclCode FakeNcclWorld::Violate(const std::string& text) {
  violations_.push_back(text);
  return NcclCode::kInvalidUsage;
}

std::vector<NcclCall> FakeNcclWorld::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeNcclWorld::violations() const {
  MutexLock lock(mutex_);
  return violations_;
}

int FakeNcclWorld::aborts() const {
  MutexLock lock(mutex_);
  return aborts_;
}

int FakeNcclWorld::Leaks() const {
  MutexLock lock(mutex_);
  int leaks = 0;
  for (const auto& [communicator, member] : members_) leaks += member->is_gone ? 0 : 1;
  return leaks;
}

void FakeNcclWorld::RefuseToJoin(int rank) {
  MutexLock lock(mutex_);
  refused_rank_ = rank;
}

void FakeNcclWorld::HoldCalls(int questions) {
  MutexLock lock(mutex_);
  held_for_ = questions;
}

void FakeNcclWorld::SetAsyncError(NcclCode code) {
  MutexLock lock(mutex_);
  async_error_ = code;
}

}  // namespace weft::testing

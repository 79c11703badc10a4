#include "distributed/nccl/testing/emulated_card.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

// Gaps of gradient buckets go through collectives unwritten, as they go to the host.
EmulatedDeviceOptions OptionsOfCard(int index, uint64_t seed) {
  EmulatedDeviceOptions options;
  options.index = index;
  options.seed = seed;
  options.checks_copies_to_host = false;
  return options;
}

}  // namespace

EmulatedCard::EmulatedCard(FakeNcclWorld& world, int index, uint64_t seed, int version)
    : device_(OptionsOfCard(index, seed)),
      nccl_(world.AddRank(
          [this](const void* data, size_t bytes) {
            return bytes == 0 || device_.IsDevicePointer(data);  // copies check the rest
          },
          version,
          [this](void* stream, FakeNcclWorld::Exchange exchange) {
            return Enqueue(stream, std::move(exchange)).ok();
          })) {}

WorkerCard EmulatedCard::card() { return {absl::StrCat("machine/", info().index), &nccl_, ""}; }

absl::StatusOr<std::unique_ptr<Stream>> EmulatedCard::NewStream(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_.NewStream(name));
  MutexLock lock(mutex_);
  streams_[stream->native_handle()] = dynamic_cast<FakeStream*>(stream.get());
  return stream;
}

absl::Status EmulatedCard::Enqueue(void* stream, FakeNcclWorld::Exchange exchange) {
  Waiting* waiting = nullptr;
  FakeStream* own = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a collective on a stream that is none of ", info().name));
    }
    own = found->second;
    waiting = &waiting_.emplace_back();
  }
  waiting->given.resize(exchange.given);
  waiting->taken.resize(exchange.taken);
  waiting->exchange = std::move(exchange);
  if (!waiting->given.empty()) {
    WEFT_RETURN_IF_ERROR(device_.CopyToHost(*own, waiting->exchange.from, waiting->given.data(),
                                            waiting->given.size()));
  }
  WEFT_RETURN_IF_ERROR(own->EnqueueLater({&EmulatedCard::RunExchange, waiting}));
  if (waiting->taken.empty()) return absl::OkStatus();
  return device_.CopyFromHost(*own, waiting->taken.data(), waiting->exchange.to,
                              waiting->taken.size());
}

// The bytes of an exchange that was aborted mean nothing, and the stream goes on.
absl::Status EmulatedCard::RunExchange(void* argument, Stream& /*stream*/) {
  auto* const waiting = static_cast<Waiting*>(argument);
  std::vector<char> taken(waiting->taken.size());
  const NcclCode code = waiting->exchange.run(waiting->given, taken);
  // In place: the copy that comes next has its address.
  if (code == NcclCode::kSuccess && taken.size() == waiting->taken.size()) {
    std::copy(taken.begin(), taken.end(), waiting->taken.begin());
  }
  return absl::OkStatus();
}

}  // namespace weft::testing

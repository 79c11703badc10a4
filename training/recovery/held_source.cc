#include "training/recovery/held_source.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "executor/variables/checkpoint_writer.h"
#include "executor/variables/snapshot_image.h"
#include "executor/variables/variable_store.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What each of them holds, in their order; nothing where it does not answer.
std::vector<HeldState> AskWhatIsHeld(const std::vector<WorkerClient*>& clients) {
  std::vector<HeldState> held(clients.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&clients, &held, i] {
      auto state = clients[i]->Ask(HeldStateRequest{.verify = true});
      if (state.ok()) held[i] = *std::move(state);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return held;
}

// So many bytes from `offset` on, in questions of kHeldPartBytes.
absl::Status ReadHeldBytes(WorkerClient& client, const SnapshotKey& key, int64_t offset,
                           std::span<std::byte> target) {
  for (size_t done = 0; done < target.size();) {
    const size_t bytes = std::min(target.size() - done, static_cast<size_t>(kHeldPartBytes));
    WEFT_ASSIGN_OR_RETURN(const HeldPart part,
                          client.Ask(ReadHeldRequest{.key = key,
                                                     .offset = offset + static_cast<int64_t>(done),
                                                     .bytes = static_cast<int64_t>(bytes)}));
    if (part.bytes.size() != bytes) {
      return absl::DataLossError(absl::StrCat(client.name(), " has given ", part.bytes.size(),
                                              " bytes of a state, and was asked for ", bytes));
    }
    std::memcpy(target.data() + done, part.bytes.data(), bytes);
    done += bytes;
  }
  return absl::OkStatus();
}

// What lies in a snapshot.
absl::StatusOr<SnapshotLayout> ReadLayout(WorkerClient& client, const HeldSnapshot& held) {
  const std::string name = absl::StrCat("state of rank ", held.key.rank, " after step ",
                                        held.key.step, " in ", client.name());
  std::vector<std::byte> header(static_cast<size_t>(std::min(held.bytes, kSnapshotLengthBytes)));
  WEFT_RETURN_IF_ERROR(ReadHeldBytes(client, held.key, 0, header));
  WEFT_ASSIGN_OR_RETURN(const int64_t length, SnapshotHeaderBytes(header, held.bytes, name));
  header.resize(static_cast<size_t>(length));
  WEFT_RETURN_IF_ERROR(ReadHeldBytes(client, held.key, 0, header));
  return ParseSnapshot(header, held.bytes, name);
}

// Parts of equal cuts are different places of one variable.
std::tuple<DType, std::string, std::string, int, int> CutOf(const VariableShard& shard) {
  return {shard.dtype, shard.global_shape.ToString(), shard.tensor_sharding.ToString(),
          shard.tensor_shards, shard.data_shards};
}

}  // namespace

std::set<std::string> StateNames(const PreparedJob& job) {
  std::set<std::string> names;
  for (const JobProgram& program : job.programs) {
    for (const Partition& partition : program.partitions) {
      for (std::string& name : CheckpointedVariables(partition)) names.insert(std::move(name));
    }
  }
  return names;
}

absl::StatusOr<HeldSource> HeldSource::FindNewest(const std::vector<WorkerClient*>& clients,
                                                  const std::set<std::string>& wanted,
                                                  uint64_t job_id, int64_t* newest) {
  const std::vector<HeldState> held = AskWhatIsHeld(clients);
  std::map<std::pair<int64_t, uint64_t>, Snapshots> found;  // by step and job
  for (size_t i = 0; i < held.size(); ++i) {
    for (const HeldSnapshot& one : held[i].snapshots) {
      if (!one.is_whole || (job_id != 0 && one.key.job_id != job_id)) continue;
      found[{one.key.step, one.key.job_id}].push_back({one, clients[i]});
    }
  }
  if (newest != nullptr) *newest = found.empty() ? -1 : found.rbegin()->first.first;
  std::string lacks;
  for (auto state = found.rbegin(); state != found.rend(); ++state) {
    absl::StatusOr<HeldSource> source = Of(state->second, wanted);
    if (source.ok()) return source;
    Log(LogLevel::kInfo, "no whole state after step ", state->first.first, ": ",
        source.status().ToString());
    if (lacks.empty()) {
      lacks = absl::StrCat("; of the newest, after step ", state->first.first, ": ",
                           std::string(source.status().message()));
    }
  }
  return absl::NotFoundError(
      found.empty() ? std::string("the workers that are left hold no copy of the state")
                    : absl::StrCat("the workers that are left hold parts of ", found.size(),
                                   " states, and none is whole", lacks));
}

absl::StatusOr<HeldSource> HeldSource::Of(const Snapshots& snapshots,
                                          const std::set<std::string>& wanted) {
  // By variable, cut and place in it.
  std::map<std::string, std::map<std::tuple<DType, std::string, std::string, int, int>,
                                 std::map<std::pair<int, int>, Part>>>
      cuts;
  for (const auto& [held, client] : snapshots) {
    absl::StatusOr<SnapshotLayout> layout = ReadLayout(*client, held);
    if (!layout.ok()) {
      Log(LogLevel::kWarning, "a held state cannot be used: ", layout.status().ToString());
      continue;
    }
    for (SnapshotEntry& entry : layout->entries) {
      if (!wanted.contains(entry.shard.name)) continue;
      Part& part = cuts[entry.shard.name][CutOf(entry.shard)]
                       [{entry.shard.tensor_index, entry.shard.data_index}];
      part.places.push_back({client, held.key, entry.offset});
      part.shard = std::move(entry.shard);
    }
  }
  HeldSource source;
  source.step_ = snapshots.front().first.key.step;
  source.job_id_ = snapshots.front().first.key.job_id;
  for (const std::string& name : wanted) {
    bool is_whole = false;
    for (auto& [cut, parts] : cuts[name]) {
      int64_t elements = 0;
      for (const auto& [place, part] : parts) elements += part.shard.local_shape.num_elements();
      // Different places of one cut: so the sum is at most that of the whole.
      if (elements != parts.begin()->second.shard.global_shape.num_elements()) continue;
      for (auto& [place, part] : parts) {
        source.workers_.insert(part.places.front().client->name());
        source.parts_[name].push_back(std::move(part));
      }
      is_whole = true;
      break;
    }
    if (!is_whole) {
      return absl::NotFoundError(absl::StrCat(
          "nobody holds ", cuts[name].empty() ? "" : "all parts of ", "variable '", name, "'"));
    }
  }
  return source;
}

std::string HeldSource::text() const {
  return absl::StrCat("copies in the memory of ", workers_.size(),
                      workers_.size() == 1 ? " worker" : " workers");
}

std::vector<std::string> HeldSource::names() const {
  std::vector<std::string> names;
  for (const auto& [name, parts] : parts_) names.push_back(name);
  return names;
}

absl::StatusOr<Tensor> HeldSource::ReadPart(const Part& part, const Place& place) {
  WEFT_ASSIGN_OR_RETURN(Tensor local, Tensor::Allocate(part.shard.dtype, part.shard.local_shape));
  WEFT_RETURN_IF_ERROR(ReadHeldBytes(*place.client, place.key, place.offset,
                                     {static_cast<std::byte*>(local.raw_data()), local.bytes()}));
  return local;
}

absl::StatusOr<Tensor> HeldSource::ReadPart(const Part& part) {
  absl::Status status;
  for (const Place& place : part.places) {
    absl::StatusOr<Tensor> local = ReadPart(part, place);
    if (local.ok()) return local;
    status = local.status();
    Log(LogLevel::kWarning, "a part of '", part.shard.name,
        "' is read elsewhere: ", status.ToString());
  }
  return status;
}

std::vector<absl::StatusOr<Tensor>> HeldSource::ReadSideBySide(const std::vector<Part>& parts) {
  std::vector<absl::StatusOr<Tensor>> locals(parts.size());
  std::map<WorkerClient*, std::vector<size_t>> by_client;
  for (size_t i = 0; i < parts.size(); ++i) {
    by_client[parts[i].places.front().client].push_back(i);
  }
  std::vector<std::thread> threads;
  for (const auto& entry : by_client) {
    const std::vector<size_t>& own = entry.second;
    threads.emplace_back([&parts, &locals, &own] {
      for (const size_t i : own) locals[i] = ReadPart(parts[i], parts[i].places.front());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return locals;
}

absl::StatusOr<Tensor> HeldSource::Read(const std::string& name) {
  const auto found = parts_.find(name);
  if (found == parts_.end()) {
    return absl::NotFoundError(absl::StrCat(text(), " have no variable '", name, "'"));
  }
  const std::vector<Part>& parts = found->second;
  if (parts.size() == 1) return ReadPart(parts.front());
  const VariableShard& first = parts.front().shard;
  WEFT_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(first.dtype, first.global_shape));
  std::vector<absl::StatusOr<Tensor>> locals = ReadSideBySide(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!locals[i].ok()) locals[i] = ReadPart(parts[i]);
    WEFT_RETURN_IF_ERROR(locals[i].status());
    WEFT_RETURN_IF_ERROR(AssembleShard(*locals[i], parts[i].shard, whole));
    locals[i] = Tensor();
  }
  return whole;
}

}  // namespace weft

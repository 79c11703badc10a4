#include "placement/simulation/step_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Kind = StepInstruction::Kind;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * uint64_t{0x9E3779B97F4A7C15};
  return hash ^ (hash >> 32);
}

uint64_t HashOf(const StepSegment& segment) {
  uint64_t hash = segment.size();
  for (const StepInstruction& instruction : segment) {
    hash = Mix(hash, static_cast<uint64_t>(instruction.kind));
    hash = Mix(hash, static_cast<uint32_t>(instruction.index));
    hash = Mix(hash, static_cast<uint32_t>(instruction.name));
    hash = Mix(hash, std::bit_cast<uint64_t>(instruction.seconds));
  }
  return hash;
}

absl::Status CheckIndex(const char* what, int32_t index, size_t size) {
  if (index >= 0 && index < static_cast<int64_t>(size)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", index, " does not exist, there are ", size));
}

absl::Status CheckTime(const char* what, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", seconds, " is not a time: expected 0 seconds or more"));
}

// What a routine asks of the tables of a rank that follows it.
struct RoutineNeeds {
  std::vector<int32_t> sends;
  std::vector<int32_t> receives;
  std::vector<int32_t> collectives;
};

void Deduplicate(std::vector<int32_t>& indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
}

class ModelCheck {
 public:
  explicit ModelCheck(const StepModel& model) : model_(model) {}

  absl::Status Run() const {
    for (const StepSegment& segment : model_.segments) WEFT_RETURN_IF_ERROR(CheckSegment(segment));
    for (const StepLink& link : model_.links) WEFT_RETURN_IF_ERROR(CheckLink(link));
    for (const StepChannel& channel : model_.channels) WEFT_RETURN_IF_ERROR(CheckChannel(channel));
    for (const StepCollective& collective : model_.collectives) {
      WEFT_RETURN_IF_ERROR(CheckCollective(collective));
    }
    std::vector<RoutineNeeds> needs;
    for (const StepRoutine& routine : model_.routines) {
      WEFT_ASSIGN_OR_RETURN(RoutineNeeds of_routine, CheckRoutine(routine));
      needs.push_back(std::move(of_routine));
    }
    for (size_t rank = 0; rank < model_.ranks.size(); ++rank) {
      WEFT_RETURN_IF_ERROR(Annotate(CheckRank(static_cast<int32_t>(rank), needs),
                                    absl::StrCat("rank ", rank, " of the simulated step")));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckName(int32_t name) const {
    return name == -1 ? absl::OkStatus() : CheckIndex("name", name, model_.names.size());
  }

  absl::Status CheckSegment(const StepSegment& segment) const {
    for (const StepInstruction& instruction : segment) {
      WEFT_RETURN_IF_ERROR(CheckName(instruction.name));
      WEFT_RETURN_IF_ERROR(CheckTime("an instruction's time", instruction.seconds));
    }
    return absl::OkStatus();
  }

  absl::Status CheckLink(const StepLink& link) const {
    WEFT_RETURN_IF_ERROR(CheckTime("a link's latency", link.latency_seconds));
    if (link.lanes >= 1 && link.bytes_per_second >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("link '", link.name, "' has ", link.lanes,
                                                   " lanes and ", link.bytes_per_second,
                                                   " bytes/s; expected 1 lane or more, and 0 or "
                                                   "more bytes/s"));
  }

  absl::Status CheckChannel(const StepChannel& channel) const {
    WEFT_RETURN_IF_ERROR(CheckName(channel.name));
    WEFT_RETURN_IF_ERROR(CheckIndex("a channel's sender, rank", channel.from, model_.ranks.size()));
    WEFT_RETURN_IF_ERROR(CheckIndex("a channel's receiver, rank", channel.to, model_.ranks.size()));
    if (channel.link != -1) {
      WEFT_RETURN_IF_ERROR(CheckIndex("a channel's link", channel.link, model_.links.size()));
    }
    WEFT_RETURN_IF_ERROR(CheckTime("a channel's time to send", channel.send_seconds));
    return CheckTime("a channel's time to receive", channel.receive_seconds);
  }

  absl::Status CheckCollective(const StepCollective& collective) const {
    WEFT_RETURN_IF_ERROR(CheckName(collective.name));
    WEFT_RETURN_IF_ERROR(CheckTime("a collective's time", collective.seconds));
    for (const int32_t member : collective.members) {
      WEFT_RETURN_IF_ERROR(CheckIndex("a collective's member, rank", member, model_.ranks.size()));
    }
    for (const auto& [link, bytes] : collective.link_bytes) {
      WEFT_RETURN_IF_ERROR(CheckIndex("a collective's link", link, model_.links.size()));
    }
    if (collective.member_bytes.empty() ||
        collective.member_bytes.size() == collective.members.size()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("a collective of ", collective.members.size(), " members says what ",
                     collective.member_bytes.size(), " of them send"));
  }

  absl::StatusOr<RoutineNeeds> CheckRoutine(const StepRoutine& routine) const {
    std::vector<int32_t> used;
    for (const StepAction& action : routine.actions) {
      WEFT_RETURN_IF_ERROR(CheckIndex("segment", action.segment, model_.segments.size()));
      used.push_back(action.segment);
    }
    Deduplicate(used);
    RoutineNeeds needs;
    for (const int32_t segment : used) {
      for (const StepInstruction& instruction : model_.segments[segment]) {
        if (instruction.kind == Kind::kSend) needs.sends.push_back(instruction.index);
        if (instruction.kind == Kind::kReceive) needs.receives.push_back(instruction.index);
        if (instruction.kind == Kind::kCollective) needs.collectives.push_back(instruction.index);
        if (instruction.kind == Kind::kAwait &&
            instruction.index > static_cast<int64_t>(routine.jobs.size())) {
          return absl::InvalidArgumentError(
              absl::StrCat("an instruction awaits ", instruction.index, " collectives of ",
                           routine.jobs.size(), " that run beside it"));
        }
      }
    }
    for (const StepJob& job : routine.jobs) needs.collectives.push_back(job.collective);
    Deduplicate(needs.sends);
    Deduplicate(needs.receives);
    Deduplicate(needs.collectives);
    return needs;
  }

  absl::Status CheckRank(int32_t index, const std::vector<RoutineNeeds>& needs) const {
    const StepRank& rank = model_.ranks[index];
    WEFT_RETURN_IF_ERROR(CheckIndex("routine", rank.routine, model_.routines.size()));
    WEFT_RETURN_IF_ERROR(CheckTime("overhead", rank.overhead_seconds));
    if (!(rank.slow_down > 0) || !std::isfinite(rank.slow_down) || rank.stage < 0) {
      return absl::InvalidArgumentError(absl::StrCat("slow-down ", rank.slow_down, ", stage ",
                                                     rank.stage, "; expected > 0 and >= 0"));
    }
    const RoutineNeeds& need = needs[rank.routine];
    for (const int32_t entry : need.sends) {
      WEFT_RETURN_IF_ERROR(CheckEnd(index, entry, /*sends=*/true));
    }
    for (const int32_t entry : need.receives) {
      WEFT_RETURN_IF_ERROR(CheckEnd(index, entry, /*sends=*/false));
    }
    for (const int32_t entry : need.collectives) {
      WEFT_RETURN_IF_ERROR(CheckIndex("its table's collective", entry, rank.collectives.size()));
      const int32_t collective = rank.collectives[entry];
      WEFT_RETURN_IF_ERROR(CheckIndex("collective", collective, model_.collectives.size()));
      const std::vector<int32_t>& members = model_.collectives[collective].members;
      if (std::find(members.begin(), members.end(), index) == members.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("it is no member of its collective ", collective));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckEnd(int32_t index, int32_t entry, bool sends) const {
    const StepRank& rank = model_.ranks[index];
    WEFT_RETURN_IF_ERROR(CheckIndex("its table's channel", entry, rank.channels.size()));
    const int32_t number = rank.channels[entry];
    WEFT_RETURN_IF_ERROR(CheckIndex("channel", number, model_.channels.size()));
    const StepChannel& channel = model_.channels[number];
    const int32_t end = sends ? channel.from : channel.to;
    if (end == index) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("it ", sends ? "sends" : "receives",
                                                   " on channel ", number, ", which rank ", end,
                                                   sends ? " sends" : " receives", " on"));
  }

  const StepModel& model_;
};

}  // namespace

int32_t StepModel::AddSegment(StepSegment segment) {
  std::vector<int32_t>& same_hash = segments_of_hash_[HashOf(segment)];
  for (const int32_t index : same_hash) {
    if (segments[index] == segment) return index;
  }
  same_hash.push_back(static_cast<int32_t>(segments.size()));
  segments.push_back(std::move(segment));
  return same_hash.back();
}

int32_t StepModel::AddName(const std::string& name) {
  const auto [entry, is_new] = name_index_.try_emplace(name, static_cast<int32_t>(names.size()));
  if (is_new) names.push_back(name);
  return entry->second;
}

absl::Status StepModel::Check() const { return ModelCheck(*this).Run(); }

}  // namespace weft

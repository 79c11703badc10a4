#include "training/data/column_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "training/data/csv_table.h"
#include "training/data/data_file.h"
#include "training/data/example_column.h"
#include "training/data/image_folder.h"
#include "training/data/npz_file.h"
#include "training/data/ragged_column.h"
#include "training/data/vocabulary.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr size_t kHeldBytes = size_t{64} << 20;
constexpr int64_t kCifarSide = 32;
constexpr size_t kCifarPixels = 3 * kCifarSide * kCifarSide;

struct Request {
  FileSystem& files;
  const DataSpec::File& file;
  const DataSpec& spec;

  // "train.npz:x", for messages.
  std::string Name() const {
    return file.part.empty() ? file.path : absl::StrCat(file.path, ":", file.part);
  }
  // Which of `parts` is asked for; without a part, the last for labels, else the first.
  absl::StatusOr<size_t> Part(const std::vector<std::string>& parts) const {
    if (file.part.empty()) return file.is_labels ? parts.size() - 1 : 0;
    const auto found = std::find(parts.begin(), parts.end(), file.part);
    if (found != parts.end()) return static_cast<size_t>(found - parts.begin());
    return UnreadableData(file.path, absl::StrCat("has no part '", file.part, "'; there are ",
                                                  absl::StrJoin(parts, ", ")));
  }
};

std::string_view Text(const SharedBytes& bytes) {
  return {static_cast<const char*>(static_cast<const void*>(bytes.bytes.data())),
          bytes.bytes.size()};
}

SharedBytes Own(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  return {std::as_bytes(std::span<const char>(*owner)), owner, /*is_mapped=*/false};
}

// The file's bytes: mapped where they are many, unpacked where they are a gzip's.
absl::StatusOr<SharedBytes> LoadFile(FileSystem& files, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, files.MapFile(path));
  const SharedBytes mapped{file->bytes(), file, /*is_mapped=*/true};
  if (Text(mapped).substr(0, 2) == "\x1f\x8b") {
    WEFT_ASSIGN_OR_RETURN(std::string unpacked, GunzipToMemory(Text(mapped), path));
    return Own(std::move(unpacked));
  }
  if (file->size() > kHeldBytes) return mapped;
  return Own(std::string(Text(mapped)));
}

absl::Status CheckNoPart(const Request& request, const char* format) {
  if (request.file.part.empty()) return absl::OkStatus();
  return UnreadableData(
      request.file.path,
      absl::StrCat("is ", format, ", which has no parts such as '", request.file.part, "'"));
}

absl::StatusOr<std::unique_ptr<DataColumn>> ColumnOfArray(const Request& request, Tensor tensor) {
  if (tensor.shape().rank() == 0 || tensor.shape().dim(0) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("data file '", request.Name(),
                                                   "' has no samples: its shape is ",
                                                   tensor.shape().ToString()));
  }
  ColumnInfo info;
  info.source = request.Name();
  return NewTensorColumn(std::move(info), std::move(tensor));
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenArray(const Request& request) {
  WEFT_RETURN_IF_ERROR(CheckNoPart(request, "an array"));
  const std::string& path = request.file.path;
  WEFT_ASSIGN_OR_RETURN(const auto file, request.files.MapFile(path));
  SharedBytes bytes{file->bytes(), file, /*is_mapped=*/true};
  if (file->size() <= kHeldBytes || Text(bytes).substr(0, 2) == "\x1f\x8b") {
    WEFT_ASSIGN_OR_RETURN(Tensor tensor, ReadDataFile(request.files, path));
    return ColumnOfArray(request, std::move(tensor));
  }
  WEFT_ASSIGN_OR_RETURN(const ArrayLayout layout, ReadArrayLayout(Text(bytes), path));
  if (layout.shape.rank() == 0 || layout.shape.dim(0) == 0) {
    return UnreadableData(path,
                          absl::StrCat("has no samples: its shape is ", layout.shape.ToString()));
  }
  ColumnInfo info;
  info.source = path;
  info.samples = layout.shape.dim(0);
  info.dtype = layout.dtype;
  info.sample_shape = Shape(layout.shape.dims().subspan(1));
  const auto sample = static_cast<size_t>(DTypeBytes(info.dtype, info.sample_shape.num_elements()));
  const bool big_endian_machine = std::endian::native == std::endian::big;
  return NewRecordColumn(std::move(info), std::move(bytes),
                         {layout.offset, sample, layout.big_endian != big_endian_machine});
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenNpz(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(request.files, request.file.path));
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, file.Read(request.file.part));
  return ColumnOfArray(request, std::move(tensor));
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenCsv(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const SharedBytes bytes, LoadFile(request.files, request.file.path));
  CsvOptions options;
  const std::string& format = request.file.format;
  options.delimiter = format == "tsv" || absl::EndsWith(request.file.path, ".tsv") ? '\t' : '\0';
  if (format == "csv-no-header") options.has_header = false;
  options.classes = request.spec.classes;
  options.is_labels = request.file.is_labels;
  options.padding = request.file.padding;
  return ReadCsv(Text(bytes), request.file.path, request.file.part, options);
}

// Whether each sample is what comes after its tokens, which are what the other part has.
absl::StatusOr<bool> IsNext(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const size_t part, request.Part({"tokens", "next"}));
  return part == 1;
}

absl::StatusOr<WindowLayout> Windows(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const bool is_next, IsNext(request));
  const int64_t length = request.spec.sequence_length;
  const int64_t stride = request.spec.stride > 0 ? request.spec.stride : length;
  return WindowLayout{length, stride, is_next ? 1 : 0};
}

SharedBytes BytesOf(const Tensor& tensor) {
  return {{static_cast<const std::byte*>(tensor.raw_data()), tensor.bytes()},
          tensor.buffer(),
          /*is_mapped=*/false};
}

// What cuts the text `bytes` of the request's file into tokens. REQUIRES: not "bytes".
absl::StatusOr<Vocabulary> VocabularyOf(const Request& request, const SharedBytes& bytes) {
  const std::string& name = request.spec.vocabulary;
  if (name == "characters") return Vocabulary::OfCharacters(Text(bytes), request.file.path);
  WEFT_ASSIGN_OR_RETURN(const SharedBytes file, LoadFile(request.files, name));
  return Vocabulary::Parse(Text(file), name);
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenText(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const WindowLayout windows, Windows(request));
  const std::string& path = request.file.path;
  WEFT_ASSIGN_OR_RETURN(SharedBytes bytes, LoadFile(request.files, path));
  ColumnInfo info;
  info.source = path;
  info.dtype = DType::kUint8;
  if (request.spec.vocabulary == "bytes") {
    return NewWindowColumn(std::move(info), std::move(bytes), windows);
  }
  WEFT_ASSIGN_OR_RETURN(const Vocabulary vocabulary, VocabularyOf(request, bytes));
  WEFT_ASSIGN_OR_RETURN(const Tensor tokens, vocabulary.Encode(Text(bytes), path));
  info.dtype = tokens.dtype();
  return NewWindowColumn(std::move(info), BytesOf(tokens), windows);
}

// The text without carriage returns and empty lines, so that a line is what is between line feeds.
std::string PlainLines(std::string_view text) {
  std::string plain;
  plain.reserve(text.size() + 1);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    plain.append(line);
    plain.push_back('\n');
  }
  return plain;
}

// The tokens of each line of `text`; with `next`, of each token the one after it, that of the line
// feed at last.
absl::StatusOr<RaggedLists> EncodeLines(const Vocabulary& vocabulary, const std::string& text,
                                        const std::string& name, bool next) {
  std::vector<int64_t> tokens, ends;
  int64_t end_token = 0;
  if (next) {
    const auto end = vocabulary.Encode("\n", name);
    if (!end.ok()) {
      return Annotate(end.status(), "the token after a line, which the labels need");
    }
    end_token = ToInt64s(*end)->front();
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    WEFT_ASSIGN_OR_RETURN(const Tensor line,
                          vocabulary.Encode(std::string_view(text).substr(at, end - at),
                                            absl::StrCat(name, ", line ", ends.size())));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ToInt64s(line));
    tokens.insert(tokens.end(), numbers.begin() + (next ? 1 : 0), numbers.end());
    if (next) tokens.push_back(end_token);
    ends.push_back(static_cast<int64_t>(tokens.size()));
    at = end + 1;
  }
  const auto count = static_cast<int64_t>(tokens.size());
  return ListsOfEnds(Tensor::Of<int64_t>({count}, tokens), ends);
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenLines(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const bool next, IsNext(request));
  const std::string& path = request.file.path;
  WEFT_ASSIGN_OR_RETURN(const SharedBytes bytes, LoadFile(request.files, path));
  SharedBytes plain = Own(PlainLines(Text(bytes)));
  ColumnInfo info;
  info.source = path;
  info.is_amount = false;
  RaggedLists lists;
  if (request.spec.vocabulary == "bytes") {
    lists = SplitDocuments(std::move(plain), DType::kUint8, '\n', next);
  } else {
    WEFT_ASSIGN_OR_RETURN(const Vocabulary vocabulary, VocabularyOf(request, plain));
    WEFT_ASSIGN_OR_RETURN(lists, EncodeLines(vocabulary, std::string(Text(plain)), path, next));
  }
  return NewRaggedColumn(std::move(info), std::move(lists), request.file.padding);
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenTokens(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(SharedBytes bytes, LoadFile(request.files, request.file.path));
  ColumnInfo info;
  info.source = request.file.path;
  info.dtype = request.file.format == "tokens16" ? DType::kUint16 : DType::kUint32;
  const auto width = static_cast<size_t>(DTypeBytes(info.dtype, 1));
  if (bytes.bytes.size() % width != 0) {
    return DamagedData(info.source,
                       absl::StrCat("truncated: ", bytes.bytes.size(), " bytes are no multiple of ",
                                    width, ", the bytes of a token"));
  }
  if (request.spec.document_end >= 0) {
    WEFT_ASSIGN_OR_RETURN(const bool next, IsNext(request));
    info.is_amount = false;
    const DType dtype = info.dtype;
    return NewRaggedColumn(std::move(info),
                           SplitDocuments(std::move(bytes), dtype, request.spec.document_end, next),
                           request.file.padding);
  }
  WEFT_ASSIGN_OR_RETURN(const WindowLayout windows, Windows(request));
  return NewWindowColumn(std::move(info), std::move(bytes), windows);
}

// https://www.cs.toronto.edu/~kriz/cifar.html: label bytes, then three planes of 32 x 32.
absl::StatusOr<std::unique_ptr<DataColumn>> OpenCifar(const Request& request) {
  const bool is_100 = request.file.format == "cifar100";
  std::vector<std::string> parts = {"image", "label"};
  if (is_100) parts = {"image", "coarse", "fine"};
  WEFT_ASSIGN_OR_RETURN(const size_t part, request.Part(parts));
  WEFT_ASSIGN_OR_RETURN(SharedBytes bytes, LoadFile(request.files, request.file.path));
  const size_t labels = is_100 ? 2 : 1;
  const size_t record = labels + kCifarPixels;
  if (bytes.bytes.empty() || bytes.bytes.size() % record != 0) {
    return DamagedData(request.file.path,
                       absl::StrCat(bytes.bytes.size(), " bytes are no whole records of ", record,
                                    ", as ", request.file.format, " has"));
  }
  ColumnInfo info;
  info.source = request.Name();
  info.samples = static_cast<int64_t>(bytes.bytes.size() / record);
  info.dtype = DType::kUint8;
  info.is_amount = part == 0;
  if (part == 0) info.sample_shape = Shape{3, kCifarSide, kCifarSide};
  const size_t offset = part == 0 ? labels : part - 1;
  return NewRecordColumn(std::move(info), std::move(bytes), {offset, record, /*swap=*/false});
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenImages(const Request& request) {
  WEFT_ASSIGN_OR_RETURN(const size_t part, request.Part({"image", "label"}));
  return OpenImageFolder(request.files, request.file.path, /*labels=*/part == 1,
                         {request.spec.image_shape, request.spec.classes});
}

// Whether `name` is what the pattern says: '*' for any characters, '?' for one.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// The paths that a pattern in the last component stands for, sorted.
absl::StatusOr<std::vector<std::string>> Shards(FileSystem& files, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string pattern = slash == std::string::npos ? path : path.substr(slash + 1);
  if (pattern.find_first_of("*?") == std::string::npos || files.Exists(path)) return {{path}};
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(folder));
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (!Matches(pattern, name)) continue;
    paths.push_back(slash == std::string::npos ? name : absl::StrCat(folder, name));
  }
  if (!paths.empty()) return paths;
  return absl::NotFoundError(absl::StrCat("no file is called '", path, "'"));
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenRecords(const Request& request) {
  if (request.file.part.empty()) {
    return UnreadableData(request.file.path, "which feature? name it, as FILE:image/encoded");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> shards,
                        Shards(request.files, request.file.path));
  const bool is_masked =
      std::any_of(request.spec.files.begin(), request.spec.files.end(),
                  [&](const DataSpec::File& file) { return file.mask_of == request.file.input; });
  const bool wants_lengths = is_masked || request.file.padding.lengths.size() > 1;
  return OpenExamples(
      request.files, shards, request.Name(),
      {request.file.part, request.spec.image_shape, request.file.padding, wants_lengths});
}

using Opener = absl::StatusOr<std::unique_ptr<DataColumn>> (*)(const Request&);

struct Format {
  const char* name;
  Opener open;
  bool is_ragged = false;  // samples may have different lengths
};
constexpr std::array<Format, 14> kFormats = {{
    {"idx", OpenArray},
    {"npy", OpenArray},
    {"npz", OpenNpz},
    {"csv", OpenCsv, true},
    {"csv-no-header", OpenCsv, true},
    {"tsv", OpenCsv, true},
    {"text", OpenText},
    {"lines", OpenLines, true},
    {"tokens16", OpenTokens, true},
    {"tokens32", OpenTokens, true},
    {"cifar10", OpenCifar},
    {"cifar100", OpenCifar},
    {"images", OpenImages},
    {"tfrecord", OpenRecords, true},
}};

struct Ending {
  const char* ending;
  const char* format;
};
constexpr std::array<Ending, 6> kFormatEndings = {{{".npz", "npz"},
                                                   {".csv", "csv"},
                                                   {".tsv", "tsv"},
                                                   {".txt", "text"},
                                                   {".tfrecord", "tfrecord"},
                                                   {".tfrecords", "tfrecord"}}};

std::string GuessFormat(const Request& request) {
  std::string path = absl::AsciiStrToLower(request.file.path);
  if (absl::EndsWith(path, ".gz")) path.resize(path.size() - 3);
  for (const Ending& known : kFormatEndings) {
    if (absl::EndsWith(path, known.ending)) return known.format;
  }
  // "train.tfrecord-00000-of-00008", as writers name shards.
  if (absl::StrContains(path, ".tfrecord-")) return "tfrecord";
  return request.files.ListDirectory(request.file.path).ok() ? "images" : "npy";
}

}  // namespace

std::vector<std::string> DataFormats() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.push_back(format.name);
  return names;
}

absl::StatusOr<std::unique_ptr<DataColumn>> OpenColumn(FileSystem& files,
                                                       const DataSpec::File& file,
                                                       const DataSpec& spec) {
  const Request request{files, file, spec};
  const std::string name = file.format.empty() ? GuessFormat(request) : file.format;
  for (const Format& format : kFormats) {
    if (name != format.name) continue;
    const bool is_windows = absl::StartsWith(name, "tokens") && spec.document_end < 0;
    if (!file.padding.empty() && (!format.is_ragged || is_windows)) {
      return UnreadableData(
          file.path, absl::StrCat("is ", name, ", whose samples all have one length; --pad is for ",
                                  "--format lines, token files with --document-end, and lists in ",
                                  "CSV cells and TFRecords"));
    }
    return format.open(request);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the data format '", name, "' is unknown; there are ", absl::StrJoin(DataFormats(), ", ")));
}

void SplitPart(FileSystem& files, const std::string& text, DataSpec::File& file) {
  const size_t colon = text.rfind(':');
  file.path = text;
  file.part.clear();
  if (colon == std::string::npos || colon == 0 || files.Exists(text)) return;
  file.path = text.substr(0, colon);
  file.part = text.substr(colon + 1);
}

}  // namespace weft

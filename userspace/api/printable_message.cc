// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/printable_message.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "google/protobuf/descriptor.h"
#include "userspace/model/printable.h"

namespace cw::api {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

namespace {

// Paths come by the thousand, and have none.
bool HasStrings(const google::protobuf::Descriptor& type) {
  thread_local absl::flat_hash_map<const google::protobuf::Descriptor*, bool> known;
  const auto [place, fresh] = known.try_emplace(&type, false);  // for the time being, since a type may hold itself
  if (!fresh) return place->second;
  bool has = false;
  for (int i = 0; i < type.field_count() && !has; ++i) {
    const FieldDescriptor& field = *type.field(i);
    has = field.type() == FieldDescriptor::TYPE_STRING ||
          (field.message_type() != nullptr && HasStrings(*field.message_type()));
  }
  return known[&type] = has;
}

}  // namespace

void MakePrintable(Message& message) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  r.ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    const int many = field->is_repeated() ? r.FieldSize(message, field) : 0;
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (!field->is_repeated()) r.SetString(&message, field, Printable(r.GetString(message, field)));
      for (int i = 0; i < many; ++i)
        r.SetRepeatedString(&message, field, i, Printable(r.GetRepeatedString(message, field, i)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && HasStrings(*field->message_type())) {
      if (!field->is_repeated()) MakePrintable(*r.MutableMessage(&message, field));
      for (int i = 0; i < many; ++i) MakePrintable(*r.MutableRepeatedMessage(&message, field, i));
    }
  }
}

}  // namespace cw::api
